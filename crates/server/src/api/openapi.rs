//! `/openapi.json`: the OpenAPI document of the API, from which docs/api.md is made.

use axum::http::header;
use axum::response::IntoResponse;

/// The document, but for the version.
const DOCUMENT: &str = include_str!("openapi.json");

pub(crate) async fn document() -> impl IntoResponse {
    let version = concat!("\"version\": \"", env!("CARGO_PKG_VERSION"), "\"");
    let text = DOCUMENT.replacen("\"version\": \"VERSION\"", version, 1);
    ([(header::CONTENT_TYPE, "application/json")], text)
}
