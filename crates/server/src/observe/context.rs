//! What is known of every request from its arrival on: its id, its time, and its body where bodies
//! are recorded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// The header of a request's id, from the client or from the server.
const ID: &str = "x-request-id";
/// Longest id that a client may give, in bytes.
const LONGEST_ID: usize = 128;

/// Id, path, time and body of a request.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) arrived: Instant,
    pub(crate) time: f64, // of arrival, in seconds since 1970
    body: OnceLock<Bytes>,
}

impl RequestContext {
    pub(crate) fn new(id: String, path: String) -> Arc<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Arc::new(RequestContext { id, path, arrived: Instant::now(), time, body: OnceLock::new() })
    }

    /// The context that [`identify`] attached to a request.
    pub(crate) fn of(request: &Request<Body>) -> Arc<Self> {
        let attached = request.extensions().get::<Arc<RequestContext>>().cloned();
        attached.unwrap_or_else(|| RequestContext::new(String::new(), request.uri().path().to_owned()))
    }

    /// Keeps the body for the record.
    pub(crate) fn keep_body(&self, body: Bytes) {
        let _ = self.body.set(body); // a request has one body
    }

    /// The body, if it was kept.
    pub(crate) fn body(&self) -> Option<Bytes> {
        self.body.get().cloned()
    }
}

/// Gives ids to requests that have none.
#[derive(Debug)]
pub(crate) struct RequestIds {
    started: u64, // seconds since 1970
    next: AtomicU64,
}

impl RequestIds {
    /// `started`: when the server started, in seconds since 1970, which tells its ids from those of
    /// an earlier run.
    pub(crate) fn new(started: u64) -> Arc<Self> {
        Arc::new(RequestIds { started, next: AtomicU64::new(0) })
    }

    fn next(&self) -> String {
        format!("req-{:x}-{:x}", self.started, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Attaches a [`RequestContext`] to every request, and the id to every answer.
pub(crate) async fn identify(State(ids): State<Arc<RequestIds>>, mut request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let (id, refused) = match request.headers().get(ID).map(client_id) {
        None => (ids.next(), None),
        Some(Ok(id)) => (id, None),
        Some(Err(why)) => (ids.next(), Some(ApiError::field("X-Request-Id", why))),
    };
    let value = HeaderValue::from_str(&id);
    let mut response = match refused {
        Some(error) => error.into_response(),
        None => {
            request.extensions_mut().insert(RequestContext::new(id, path));
            next.run(request).await
        }
    };
    if let Ok(value) = value {
        response.headers_mut().insert(ID, value);
    }
    response
}

/// The id that the client gave its request.
fn client_id(value: &HeaderValue) -> Result<String, String> {
    let wrong = || format!("expected 1 to {LONGEST_ID} visible ASCII characters");
    let id = value.to_str().map_err(|_| wrong())?;
    let visible = id.bytes().all(|byte| byte.is_ascii_graphic());
    if (1..=LONGEST_ID).contains(&id.len()) && visible { Ok(id.to_owned()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_short_and_visible() {
        let id = |text: &'static str| client_id(&HeaderValue::from_static(text));
        assert_eq!(id("a-1/b").as_deref(), Ok("a-1/b"));
        assert!(id("").is_err() && id("a b").is_err());
        let long = HeaderValue::from_str(&"x".repeat(LONGEST_ID + 1)).expect("ASCII");
        assert!(client_id(&long).is_err());
    }
}
