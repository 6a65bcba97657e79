//! An HTTP server for one [`Engine`](selfspec_engine::Engine), with OpenAI's API.
//!
//! `api/` parses bodies to a [`GenerationRequest`], runs it, and writes answers and streams;
//! `http/` has connections, limits, keys and origins; `observe/` has metrics, the record of
//! requests and the arms of A/B comparisons; `page/` is a chat page in the browser.
//!
//! Every field of a request is honoured or refused by its name. Nothing is truncated silently: a
//! prompt that does not fit the context is refused with `context_length_exceeded`.
//!
//! The engine runs on its own thread and adds events to a queue, which the task of the request
//! reads (`api/generate/events.rs`). Neither waits for the other. A client that leaves drops its
//! queue, which cancels the request. A request whose client does not read pauses without KV pages,
//! and loses its connection in the end (`http/stall.rs`).
#![forbid(unsafe_code)]

mod api;
mod app_state;
mod error;
mod http;
mod observe;
mod options;
mod page;
mod router;
mod serve;
mod serve_error;
mod served_model;
mod short_hash;

pub use api::openai::{parse_chat, parse_completion};
pub use api::request::{
    AnswerFormat, Conversation, DraftOptions, EndConditions, GenerationRequest, OfferedTool, OutputOptions,
    PromptInput, ToolOffer,
};
pub use error::ApiError;
pub use observe::record::RecordOptions;
pub use options::ServeOptions;
pub use serve::Server;
pub use serve_error::ServeError;
pub use served_model::ServedModel;
