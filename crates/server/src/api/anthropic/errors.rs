//! Anthropic's error object, for every error of its paths: also those of keys, limits and origins.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// The error object.
pub(super) fn object(error: &ApiError) -> Value {
    let kind = match error.status().as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": error.to_string() } })
}

/// Gives the errors of Anthropic's paths their shape.
pub(crate) async fn shape_errors(request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path();
    let ours = path == "/v1/messages" || path.starts_with("/v1/messages/");
    let response = next.run(request).await;
    let Some(error) = response.extensions().get::<ApiError>().filter(|_| ours) else { return response };
    let mut shaped = (error.status(), Json(object(error))).into_response();
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH && name != header::CONTENT_TYPE {
            shaped.headers_mut().insert(name, value.clone());
        }
    }
    shaped.extensions_mut().insert(error.clone());
    shaped
}
