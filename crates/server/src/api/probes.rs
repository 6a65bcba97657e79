//! Whether the server lives, whether it takes work, and what it has done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::observe::exposition;

pub(crate) async fn livez() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The model is loaded before the server listens, so that only draining makes it unready.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    if app.is_draining() {
        return Err(ApiError::unavailable("the server is about to stop"));
    }
    Ok(Json(json!({ "status": "ok" })))
}

pub(crate) async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let engine = app.engine();
    Json(json!({
        "model": app.model_id(),
        "context_length": engine.context(),
        "layers": engine.n_layers(),
        "threads": engine.threads(),
        "isa": engine.isa().map(|isa| isa.to_string()),
        "kv_type": engine.kv_type().to_string(),
        "exit_head": engine.exit_head().is_some(),
        "chat_template": engine.chat_template().is_some(),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// All metrics in Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let families = app.metrics().families(&app.engine().counters(), app.load().requests(), app.model_id());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], exposition::text(&families))
}
