//! Anthropic's `/v1/messages`.

mod blocks;
mod errors;
mod parse;
mod writer;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::api::anthropic::writer::MessageWriter;
use crate::api::generate::{generate, prompt};
use crate::api::receive::receive;
use crate::app_state::AppState;
use crate::error::ApiError;

pub(crate) use errors::shape_errors;

/// The paths that generate text.
pub(crate) fn generation_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/messages", post(handle))
}

/// The other paths.
pub(crate) fn other_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/messages/count_tokens", post(count_tokens))
}

async fn handle(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Response, ApiError> {
    let (request, context) = receive(&app, request, parse::parse).await?;
    let identity = app.next_answer();
    let serial = identity.serial.clone();
    let writer = MessageWriter::new(identity, request.output, request.end.stop.clone());
    generate(&app, request, context, writer, &serial).await
}

async fn count_tokens(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let (request, _) = receive(&app, request, parse::parse).await?;
    let tokens = prompt::encode(&app, &request.prompt, &request.tools, request.prompt_field)?;
    Ok(Json(json!({ "input_tokens": tokens.len() })))
}
