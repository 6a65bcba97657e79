//! The OpenAI wire format over an [`Engine`](selfspec_engine::Engine): HTTP requests in, answers and event streams out.
//!
//! A request is read field by field (`fields.rs`): a field that is known and cannot be served is refused by its name, a value out of its range as well, and one
//! that nobody knows is logged once and left aside. Nothing is truncated in silence: what does not fit the context is `context_length_exceeded`.
//!
//! The engine generates on its own thread, and puts events into a queue that the task of the request reads (`events.rs`): no thread waits for another. A client that leaves
//! drops its end, and with it the request's pages; one that does not read gives them to others meanwhile, and loses its connection in the end (`wire.rs`).
#![forbid(unsafe_code)]

mod answer;
mod app;
mod arm;
mod body;
mod calls;
mod chat;
mod completions;
mod connections;
mod constraint;
mod cors;
mod error;
mod events;
mod exposition;
mod fields;
mod format;
mod heavy;
mod keys;
mod limits;
mod messages;
mod metrics;
mod models;
mod openapi;
mod page;
mod panics;
mod prediction;
mod probes;
mod record;
mod request;
mod serve;
mod short_hash;
mod speculation;
mod stream;
mod ticket;
mod tokens;
mod tools;
mod watch;
mod wire;

pub use arm::{Arm, ChosenBy};
pub use record::{RecordChoice, RecordLine, RecordOptions};
pub use serve::{ServeError, ServeOptions, Server};
