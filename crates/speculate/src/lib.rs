//! Lossless speculation: draft, verify, accept, commit or roll back.
//!
//! A [`Sequence`] asks for the rows that it wants in the next step ([`Sequence::rows`]) and takes
//! their logits ([`Sequence::absorb`]). The caller owns the model and the clock. One round drafts k
//! tokens, verifies them in one pass of the full model, and commits between 1 and k + 1 tokens.
//! Plain decoding is the round with k = 0: there is no second path.
//!
//! - `round/`: the round, in `draft_verify_accept.rs`.
//! - `draft/`: one file a drafter; `registry.rs` makes them.
//! - `sample/`: from a row of logits to a token.
//! - `policy/`: whether to draft, with which drafter, and how far; one file a noun.
//! - `sequence/`: a sequence, its limits, its rounds.
//!
//! Invariants:
//!
//! - Greedy and seeded output is token for token that of plain decoding. Unseeded output has
//!   exactly its distribution.
//! - After every round the cache holds `committed - 1` positions in every layer. This is checked in
//!   release builds too.
//! - One sampler serves drafting, verification and plain decoding. Every random number is a pure
//!   function of (seed or entropy, position, purpose).
//! - Nothing here does I/O, reads a clock or starts a thread.
#![forbid(unsafe_code)]

mod draft;
mod error;
mod policy;
mod round;
mod sample;
mod sequence;
mod stats;
mod target;
mod words;

pub use draft::kind::{DrafterChoice, DrafterKind};
pub use draft::params::{DraftLen, MAX_DRAFT, SpeculationParams};
pub use draft::path::DraftPath;
pub use error::{ParamError, SequenceError};
pub use policy::cost::model::CostModel;
pub use policy::cost::path_record::PathDrafts;
pub use policy::drafter_off::{DrafterOff, DrafterOffCause};
pub use policy::round_reason::RoundReason;
pub use round::draft_verify_accept::{AcceptedDrafts, VerifyReadout, accept_drafts};
pub use round::lockstep::keep_cheap_drafts;
pub use round::token_source::TokenSource;
pub use sample::constraint::{TokenConstraint, TokenMask};
pub use sample::distribution::TokenDistribution;
pub use sample::history::{PenaltyHistory, PenaltyView};
pub use sample::noise::RoundPosition;
pub use sample::params::SamplingParams;
pub use sample::sampler::{DraftToken, LogitsRow, Sampler, VerifiedToken};
pub use sample::sequence_sampler::{SequenceSampler, TokenChoiceError};
pub use sequence::limits::SequenceEnd;
pub use sequence::params::{MAX_LOGPROBS, SequenceParams};
pub use sequence::row_chooser::{RowChooser, StepChooser};
pub use sequence::state::{CommittedToken, Sequence};
pub use stats::{DrafterStats, PositionStats, RoundTrace, SpecStats};
pub use target::TargetModel;
