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

mod chi_square;
mod draft;
mod error;
pub mod exactness;
mod params;
mod policy;
mod round;
mod sample;
mod sequence;
mod stats;
mod target;

pub use draft::drafter::Drafter;
pub use draft::layers::ModelDrafter;
pub use draft::path::DraftPath;
pub use draft::prompt_lookup::PromptLookup;
pub use error::{LogitsFault, ParamError, SpecError};
pub use params::{DraftLen, DrafterChoice, MAX_DRAFT, MAX_LOGPROBS, SamplingParams, SequenceParams, SpeculationParams};
pub use policy::cost::CostModel;
pub use policy::reason::Reason;
pub use round::lockstep::drafts_first;
pub use round::source::TokenSource;
pub use sample::distribution::Distribution;
pub use sample::history::History;
pub use sample::logprob::TokenLogprob;
pub use sample::mask::{Mask, TokenMask};
pub use sample::noise::Place;
pub use sample::sampler::{Draft, LogitsRow, Sampler, Verdict};
pub use sequence::{Committed, FinishReason, Sequence};
pub use stats::{DrafterKind, DrafterStats, PositionStats, RoundTrace, SpecStats};
pub use target::Target;
