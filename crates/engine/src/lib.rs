//! Requests in, token events out.
//!
//! An [`Engine`] owns a model's backend on one thread. Each [`Request`] becomes a sequence; every
//! step runs rows of all running sequences together, whether they are in prefill, draft or verify.
//! A request's tokens do not depend on the other requests in its steps.
//!
//! ```no_run
//! use selfspec_engine::{Engine, EngineOptions, Event, Prompt, Request};
//!
//! # fn main() -> Result<(), selfspec_engine::EngineError> {
//! let engine = Engine::open("model.gguf".as_ref(), &EngineOptions::default())?;
//! let mut text = String::new();
//! for event in engine.submit(Request::new(Prompt::Text("The capital of France is".into())))? {
//!     match event {
//!         Event::Token(token) => text.push_str(&token.text),
//!         Event::Failed(error) => return Err(error),
//!         Event::Prompt { .. } | Event::Done(_) => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//!
//! - No content of a request can end another request.
//! - A request is accepted only if it fits an empty cache. Before a step runs out of pages, the
//!   youngest requests are preempted and computed again later, to the same bits.
//! - Only one thread uses the backend.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod events;
mod fault;
mod grammars;
mod loading;
mod observe;
mod options;
mod panics;
mod request;
mod scheduler;

pub use engine::Engine;
pub use error::EngineError;
pub use events::event::{Event, FinishReason, Progress, RequestSummary, TokenEvent, TokenGap};
pub use events::generation::{Canceller, Generation, TimedOut};
pub use events::reasoning::ReasoningMarks;
pub use events::sink::{EventSink, SinkDemand};
pub use fault::{EngineFault, believed_seconds};
pub use grammars::service::GrammarTicket;
pub use loading::draft_setup::{DraftSetup, ExitHeadSource};
pub use loading::loaded::{LoadedModel, TextOnly};
pub use loading::model_info::{ModelInfo, TensorTypeInfo};
pub use loading::tuning::{TunedDrafter, Tuning};
pub use observe::counters::EngineCounters;
pub use observe::histogram::{Histogram, HistogramReading};
pub use observe::step_kind::StepKind;
pub use options::EngineOptions;
pub use request::{Prompt, Request};
