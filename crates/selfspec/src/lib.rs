//! The library of selfspec: from a model's name or path to a running engine.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod builder;
mod chat;
mod error;
mod model;
mod options;
mod speculation;
mod stream;

pub use builder::{DEFAULT_MODEL_NAME, ModelBuilder};
pub use chat::{Chat, Reply};
pub use error::Error;
pub use model::Model;
pub use options::{DEFAULT_MAX_TOKENS, GenerateOptions};
pub use speculation::{RequestedDrafter, SpeculationError, SpeculationRequest};
pub use stream::{Completion, GeneratedToken, TokenStream};

// Types of other crates that a caller builds or matches because signatures here have them. All else
// of those crates stays there: a program that needs it depends on them.
pub use selfspec_engine::{Canceller, FinishReason, Prompt};
pub use selfspec_kernels::{Isa, KvType};
pub use selfspec_speculate::{DraftLen, SamplingParams};
pub use selfspec_text::{GrammarSource, Message};
