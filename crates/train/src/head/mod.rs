//! Trains an exit head for a frozen model.
//!
//! `plan` describes the head and its initial values, `rollout` drafts from every position, `loss`
//! compares the drafts with the model, `trainer` takes the steps, `evaluation` measures held-out
//! texts, `file` writes the head.

mod evaluation;
mod file;
mod frozen;
mod loss;
mod options;
mod plan;
mod progress;
mod rollout;
mod source;
mod trainer;

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod gradient_tests;
#[cfg(test)]
pub(crate) mod reference;

pub use evaluation::{HeadEvaluation, HeldOutAcceptance, TEMPERATURE};
pub use file::HeadPrecision;
pub use options::{HeadOptions, HeadRun};
pub use plan::HeadPlan;
pub use progress::{HeadStep, HeadTrainingEvent};
pub use trainer::{HeadTrainer, TrainingResult};
