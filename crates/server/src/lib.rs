//! The OpenAI wire format over an [`Engine`](selfspec_engine::Engine): HTTP requests in, answers and event streams out.
//!
//! A request is read field by field (`fields.rs`): a field that is known and cannot be served is refused by its name, a value out of its range as well, and one
//! that nobody knows is logged once and left aside. Nothing is truncated in silence: what does not fit the context is `context_length_exceeded`.
//!
//! The engine generates on its own thread, and puts events into a queue that the task of the request reads (`events.rs`): no thread waits for another. A client that leaves
//! drops its end, and with it the request's pages; one that does not read gives them to others meanwhile, and loses its connection in the end (`wire.rs`).
#![forbid(unsafe_code)]

mod api;
mod app;
mod error;
mod http;
mod observe;
mod page;
mod serve;
mod short_hash;

pub use observe::arm::{Arm, ChosenBy};
pub use observe::record::{RecordChoice, RecordLine, RecordOptions};
pub use serve::{ServeError, ServeOptions, Server};
