//! Proof on this machine that speculation changes nothing, and that the proof tested something.
//!
//! Every prompt is decoded plainly, then under settings that must not matter: drafter, draft
//! length, bonus row, threads, alone or in a batch. All token ids must be equal, greedy and seeded.
//! Unseeded sampling cannot be compared token by token: its acceptance rule is tested as a
//! distribution, on this model's own logits. If nothing was drafted, accepted or rejected, or an
//! accepted length never occurred, the proof has failed too.

mod comparison;
mod logit_tree;
mod rejection;
mod run;
mod setting;

pub use comparison::{Comparison, DrafterTally, OutputMismatch};
pub use rejection::SamplingTrials;
pub use run::{LONGEST_DRAFT, VerifyOptions, VerifyReport, plain_threads, verify};
pub use setting::{DecodingSetting, SamplingMode, VerifiedDrafter};
