//! Lossless speculation: propose, verify, accept, commit or roll back.
//!
//! A [`Sequence`] says which rows it wants in the next step ([`Sequence::rows`]) and takes their logits
//! ([`Sequence::absorb`]); the caller owns the model and the clock. One round drafts k tokens, judges them all in one pass
//! of the full model, and commits between 1 and k + 1 tokens. Plain decoding is the round with k = 0: there is no second path.
//!
//! What holds always:
//!
//! - Greedy and seeded output is token for token what plain decoding gives; unseeded output has exactly its distribution.
//! - After every round the cache holds `committed - 1` positions in every layer. It is checked, in release builds too.
//! - One sampler serves drafting, verification and plain decoding. Every random number is a pure function of
//!   (seed or entropy, position, purpose).
//! - Nothing here does I/O, reads a clock or starts a thread.
#![forbid(unsafe_code)]

pub mod cost;
pub mod drafter;
pub mod error;
pub mod exactness;
pub mod params;
pub mod sampler;
pub mod sequence;
pub mod stats;

mod acceptance;
mod chi_square;
mod confidence;
mod controller;
mod distribution;
mod grammar_drafter;
mod history;
mod lockstep;
mod logprob;
mod mask;
mod model_drafter;
mod noise;
mod path;
mod prediction;
mod prompt_lookup;
mod reason;
mod round;
mod softmax;
mod source;
mod target;
mod truncation;
mod wide;
mod window;

pub use cost::CostModel;
pub use distribution::Distribution;
pub use drafter::Drafter;
pub use error::{LogitsFault, ParamError, SpecError};
pub use history::History;
pub use lockstep::drafts_first;
pub use logprob::TokenLogprob;
pub use mask::{Mask, TokenMask};
pub use model_drafter::ModelDrafter;
pub use noise::Place;
pub use params::{DraftLen, DrafterChoice, MAX_DRAFT, MAX_LOGPROBS, SamplingParams, SequenceParams, SpeculationParams};
pub use path::DraftPath;
pub use prompt_lookup::PromptLookup;
pub use reason::Reason;
pub use sampler::{Draft, LogitsRow, Sampler, Verdict};
pub use sequence::{Committed, FinishReason, Sequence};
pub use source::TokenSource;
pub use stats::{DrafterKind, DrafterStats, PositionStats, RoundTrace, SpecStats};
pub use target::Target;
