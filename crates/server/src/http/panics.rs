//! A panic while a request is answered ends that request, with an error, and no other.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt};

use crate::error::ApiError;

/// Answers 500 if the handler panics; a stream that panics on its way ends with an event that says so.
pub(crate) async fn catch(request: Request<Body>, next: Next) -> Response {
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

/// Logs the panic, and gives what the client is told of it.
fn error_of(panic: &(dyn Any + Send)) -> ApiError {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(message, "a request panicked");
    ApiError::internal("the server made a mistake while it answered; its log has more")
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
                _ => panic!("on its way"),
            });
            ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(pieces))
        };
        let falls = || async {
            if true {
                panic!("over its feet")
            }
        };
        Router::new()
            .route("/falls", get(falls))
            .route("/stream", get(stream))
            .route("/stands", get(|| async { "fine" }))
            .layer(from_fn(catch))
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
        let (status, body) = ask("/falls").await;
        assert_eq!(status, 500);
        assert!(body.contains("\"type\":\"server_error\"") && !body.contains("feet"), "{body}");
        assert_eq!(ask("/stands").await, (200, "fine".to_owned()));
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
