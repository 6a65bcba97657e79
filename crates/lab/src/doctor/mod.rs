//! Diagnosis of speculation with a model, on this machine, on the user's prompts.
//!
//! Checks of correctness come first, because the others say nothing without them:
//!
//! 1. Rounds by hand beside plain decoding: length, content and pages of the cache (`rounds.rs`).
//! 2. The prompts with drafts and without: the same tokens (`outputs.rs`).
//! 3. The exit path: norm and head in full precision against a draft's logits (`exit_path.rs`).
//!
//! Then the causes of speed: the cost of a draft against that of the cost model, and the measured
//! speed-up against the predicted one (`costs.rs`); acceptance against the record (`domain.rs`),
//! and from the beginning of an answer to its end.

mod check;
mod costs;
mod domain;
mod examined;
mod exit_path;
mod outputs;
mod report;
mod rounds;
mod run;

pub use check::{CheckResult, DoctorCheck, DoctorFinding};
pub use report::{DoctorReport, PlantedFault};
pub use run::{DoctorOptions, doctor, strange_prompts};
