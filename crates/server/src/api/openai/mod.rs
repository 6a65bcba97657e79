//! OpenAI's API: chat completions, completions and models.

pub(crate) mod answer;
mod chat;
mod chat_writer;
mod completion_writer;
mod completions;
mod format;
pub(crate) mod logprobs;
pub(crate) mod messages;
mod models;
pub(crate) mod shared_fields;
pub(crate) mod tools;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app_state::AppState;

pub use chat::parse_chat;
pub use completions::parse_completion;

/// The paths that generate text.
pub(crate) fn generation_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/chat/completions", post(chat::handle)).route("/v1/completions", post(completions::handle))
}

/// The other paths.
pub(crate) fn other_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/models", get(models::list)).route("/v1/models/{*id}", get(models::one))
}
