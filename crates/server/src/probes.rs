//! Whether the server lives, whether it takes work, and what it has done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

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

/// The counters in Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let counters = app.engine().counters();
    let all: [(&str, &str, &str, u64); 7] = [
        ("requests", "gauge", "Requests that have been taken on and are not over.", app.load().requests() as u64),
        ("steps_total", "counter", "Steps run.", counters.steps),
        ("rows_total", "counter", "Rows in them.", counters.rows),
        ("layer_rows_total", "counter", "Rows times layers computed.", counters.layer_rows),
        ("generation_tokens_total", "counter", "Tokens of finished requests.", counters.tokens),
        ("preemptions_total", "counter", "Times that a request gave its pages to older ones.", counters.preemptions),
        ("panics_total", "counter", "Steps that panicked.", counters.panics),
    ];
    let text: String = all
        .iter()
        .map(|(name, kind, help, value)| {
            format!("# HELP selfspec_{name} {help}\n# TYPE selfspec_{name} {kind}\nselfspec_{name} {value}\n")
        })
        .collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
