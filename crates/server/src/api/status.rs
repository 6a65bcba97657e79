//! Probes, properties and metrics of the server.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app_state::AppState;
use crate::error::ApiError;
use crate::observe::exposition;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/health", get(readyz))
        .route("/props", get(props))
        .route("/metrics", get(metrics))
}

async fn livez() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The model is loaded before the server listens, so that it is ready until it drains.
async fn readyz(State(app): State<Arc<AppState>>) -> Result<Json<Value>, ApiError> {
    app.refuse_while_draining()?;
    Ok(Json(json!({ "status": "ok" })))
}

async fn props(State(app): State<Arc<AppState>>) -> Json<Value> {
    let engine = app.engine();
    Json(json!({
        "model": app.model().id,
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
async fn metrics(State(app): State<Arc<AppState>>) -> impl IntoResponse {
    let families = app.metrics().families(&app.engine().counters(), app.admission().choices(), &app.model().id);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], exposition::text(&families))
}
