//! What a request is known by from its arrival on: its id, its time, and its body where that is to be recorded.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::ApiError;

/// The header of a request's id, from the client or from the server.
const ID: &str = "x-request-id";
/// Longest id that a client may give.
const LONGEST: usize = 128;
/// The paths whose requests generate.
const GENERATING: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// What a request is known by.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) arrived: Instant,
    pub(crate) time: f64, // of arrival, in seconds since 1970
    body: OnceLock<Bytes>,
}

impl Ticket {
    pub(crate) fn new(id: String, path: String) -> Arc<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Arc::new(Ticket { id, path, arrived: Instant::now(), time, body: OnceLock::new() })
    }

    /// The ticket of a request, which [`issue`] has given it.
    pub(crate) fn of(request: &Request<Body>) -> Arc<Self> {
        let given = request.extensions().get::<Arc<Ticket>>().cloned();
        given.unwrap_or_else(|| Ticket::new(String::new(), request.uri().path().to_owned()))
    }

    /// Keeps the request's body.
    pub(crate) fn keep(&self, body: Bytes) {
        let _ = self.body.set(body); // there is one body
    }

    /// The request's body, if it was kept.
    pub(crate) fn body(&self) -> Option<Bytes> {
        self.body.get().cloned()
    }
}

/// Gives every request its ticket and every answer the id, and counts the answers.
pub(crate) async fn issue(State(app): State<Arc<App>>, mut request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let generates = GENERATING.contains(&path.as_str());
    let (id, refused) = match request.headers().get(ID).map(own_id) {
        None => (app.new_id(), None),
        Some(Ok(id)) => (id, None),
        Some(Err(why)) => (app.new_id(), Some(ApiError::field("X-Request-Id", why))),
    };
    let value = HeaderValue::from_str(&id);
    let mut response = match refused {
        Some(error) => error.into_response(),
        None => {
            request.extensions_mut().insert(Ticket::new(id, path));
            next.run(request).await
        }
    };
    if let Ok(value) = value {
        response.headers_mut().insert(ID, value);
    }
    app.metrics().answered(response.status(), generates);
    response
}

/// The id that a client gives its request.
fn own_id(value: &HeaderValue) -> Result<String, String> {
    let wrong = || format!("expected 1 to {LONGEST} visible ASCII characters");
    let id = value.to_str().map_err(|_| wrong())?;
    let visible = id.bytes().all(|byte| byte.is_ascii_graphic());
    if (1..=LONGEST).contains(&id.len()) && visible { Ok(id.to_owned()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_are_short_and_visible() {
        let id = |text: &'static str| own_id(&HeaderValue::from_static(text));
        assert_eq!(id("a-1/b").as_deref(), Ok("a-1/b"));
        assert!(id("").is_err() && id("a b").is_err());
        let long = HeaderValue::from_str(&"x".repeat(LONGEST + 1)).expect("ASCII");
        assert!(own_id(&long).is_err());
    }
}
