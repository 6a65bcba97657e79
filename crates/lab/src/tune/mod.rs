//! Finds the fastest way to draft on the user's prompts and machine, or that none pays.
//!
//! 1. The model answers the prompts plainly; the draft vocabulary is counted on the answers.
//! 2. Every drafter runs on the prompts with a fixed draft length: that gives its acceptance by
//!    place in the round.
//! 3. Passes and draft steps are timed at several contexts: that gives c and b(m), and with the
//!    acceptance the expected speed-up for each k.
//! 4. The drafters with the highest predictions run against plain decoding, prompt by prompt. The
//!    best one by prediction and measurement together is kept, if it pays.

mod candidate;
mod costs;
mod draft_vocab;
mod options;
mod page;
mod report;
mod run;
mod sweep;
mod table;

pub use candidate::DrafterCandidate;
pub use costs::CandidateCosts;
pub use options::TuneOptions;
pub use report::{CandidateSpeed, TuneReport};
pub use run::tune;
pub use sweep::CandidateAcceptance;
