//! Requests in, token events out.
//!
//! An [`Engine`] owns a model's backend on one thread. Each [`Request`] becomes a sequence; every step runs rows of all live
//! sequences together, whatever each of them is at: reading its prompt, drafting, verifying. What a request gets is the same,
//! token for token, whoever it shares the steps with.
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
//! Invariants: nothing a request contains ends another request; a request is accepted only if it fits an empty cache, and before a step runs out of pages the
//! youngest requests give theirs back and are computed again later, to the same bits; the backend is touched by one thread.
#![forbid(unsafe_code)]

mod budget;
mod counters;
mod draft_heads;
mod engine;
mod error;
mod event;
mod fault;
mod generation;
mod grammar;
mod histogram;
mod info;
mod live;
mod loaded;
mod options;
mod output;
mod prefix;
mod request;
mod sink;
mod step_kind;
mod tuning;
mod vocab;
mod worker;

pub use counters::EngineCounters;
pub use draft_heads::{DraftSetup, ExitHeadSource};
pub use engine::Engine;
pub use error::EngineError;
pub use event::{Event, FinishReason, Gap, Progress, Summary, TokenEvent};
pub use fault::{Fault, believed_seconds};
pub use generation::{Canceller, Generation, TimedOut};
pub use histogram::{Histogram, HistogramReading};
pub use info::{ModelInfo, TensorTypeInfo};
pub use loaded::{Loaded, TextOnly};
pub use options::EngineOptions;
pub use request::{Prompt, Request};
pub use sink::{Demand, EventSink};
pub use step_kind::StepKind;
pub use tuning::{TunedDrafter, Tuning};

// What a program on top of the engine needs of the crates below.
pub use selfspec_kernels::{Isa, KvType};
pub use selfspec_model::{
    Backend, BackendError, DraftHeads, DraftVocab, Enter, ExitHead, ExitHeadCard, ExitHeadInfo, Fault as BackendFault,
    LayerPlan, Model, Part, PartSeconds, PlanError, Readout, Row, SeqId, StepOutput, TokenId,
};
pub use selfspec_speculate::{
    DraftLen, DraftPath, DrafterChoice, DrafterKind, DrafterStats, MAX_DRAFT, ParamError, PositionStats, RoundReason,
    RoundTrace, SamplingParams, SequenceError, SpecStats, SpeculationParams, TokenLogprob, TokenSource,
};
pub use selfspec_text::{
    ChatTemplate, FoundCall, Grammar, GrammarSource, LONGEST_GRAMMAR, Message, Piece, RenderedPrompt, TokenKind,
    Tokenizer, ToolCall, ToolCallReader, ToolStyle, ToolSupport, one_line,
};
