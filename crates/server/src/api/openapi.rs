//! `/openapi.json`: the OpenAPI document, the source of docs/api.md.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::app_state::AppState;

/// The document, without the version.
const DOCUMENT: &str = include_str!("openapi.json");

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/openapi.json", get(document))
}

async fn document() -> impl IntoResponse {
    let version = concat!("\"version\": \"", env!("CARGO_PKG_VERSION"), "\"");
    let text = DOCUMENT.replacen("\"version\": \"VERSION\"", version, 1);
    ([(header::CONTENT_TYPE, "application/json")], text)
}
