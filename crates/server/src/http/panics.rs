//! A panic while a request is answered fails that request only.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt};

use crate::error::ApiError;

/// Answers 500 if the handler panics. A stream that panics ends with an error event.
pub(crate) async fn catch_panics(request: Request<Body>, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) if is_stream(&response) => {
            let (parts, body) = response.into_parts();
            let body = AssertUnwindSafe(body.into_data_stream()).catch_unwind().map(|piece| match piece {
                Ok(piece) => piece,
                Err(panic) => Ok(Bytes::from(format!("data: {}\n\ndata: [DONE]\n\n", error_of(&*panic).json()))),
            });
            Response::from_parts(parts, Body::from_stream(body))
        }
        Ok(response) => response,
        Err(panic) => error_of(&*panic).into_response(),
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

/// Logs the panic. The client gets an error without its details.
fn error_of(panic: &(dyn Any + Send)) -> ApiError {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(message, "a request panicked");
    ApiError::internal("internal error while answering; the server's log has the details")
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    fn router() -> Router {
        let stream = || async {
            let pieces = futures_util::stream::iter(0..3).map(|i| match i {
                0 => Ok::<_, std::io::Error>(Bytes::from_static(b"data: {}\n\n")),
                _ => panic!("in the stream"),
            });
            ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(pieces))
        };
        let panics = || async {
            if true {
                panic!("in the handler")
            }
        };
        Router::new()
            .route("/panics", get(panics))
            .route("/stream", get(stream))
            .route("/answers", get(|| async { "fine" }))
            .layer(from_fn(catch_panics))
    }

    async fn ask(path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (status, String::from_utf8(bytes.to_vec()).expect("UTF-8"))
    }

    #[tokio::test]
    async fn a_handler_that_panics_is_a_500_and_others_go_on() {
        let (status, body) = ask("/panics").await;
        assert_eq!(status, 500);
        assert!(body.contains("\"type\":\"server_error\"") && !body.contains("in the handler"), "{body}");
        assert_eq!(ask("/answers").await, (200, "fine".to_owned()));
    }

    #[tokio::test]
    async fn a_stream_that_panics_ends_with_an_error_and_done() {
        let (status, body) = ask("/stream").await;
        assert_eq!(status, 200);
        let events: Vec<&str> = body.split_terminator("\n\n").collect();
        assert_eq!((events.len(), events[0], events[2]), (3, "data: {}", "data: [DONE]"), "{body}");
        assert!(events[1].starts_with("data: {\"error\":"), "{body}");
    }
}
