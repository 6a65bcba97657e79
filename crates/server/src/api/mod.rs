//! The HTTP API: one file or folder a dialect.
//!
//! A dialect is three things. A **parser** turns a body into a
//! [`GenerationRequest`](request::GenerationRequest), the plain request that all dialects share. An
//! [`AnswerWriter`](generate::writer::AnswerWriter) turns generated text and tool calls into the
//! dialect's answer and stream. A **handler** joins them: it calls [`receive`](receive::receive)
//! and [`generate`](generate::generate). Its routes are merged below, and its paths and fields are
//! described in `openapi.json`.
//!
//! A known field that the server cannot honour is refused by its name, and so is a value out of
//! range. An unknown field is ignored and logged once.

pub(crate) mod anthropic;
pub(crate) mod blocking;
pub(crate) mod fields;
pub(crate) mod generate;
pub(crate) mod llama_server;
pub(crate) mod openai;
pub(crate) mod openapi;
pub(crate) mod receive;
pub(crate) mod request;
pub(crate) mod responses;
pub(crate) mod speculation;
pub(crate) mod status;

use std::sync::Arc;

use axum::Router;

use crate::app_state::AppState;

/// The paths that generate text.
pub(crate) fn generation_routes() -> Router<Arc<AppState>> {
    openai::generation_routes().merge(responses::generation_routes()).merge(anthropic::generation_routes())
}

/// All other paths.
pub(crate) fn other_routes() -> Router<Arc<AppState>> {
    openai::other_routes()
        .merge(anthropic::other_routes())
        .merge(llama_server::routes())
        .merge(status::routes())
        .merge(openapi::routes())
}
