//! Trains an exit head for a frozen model.

mod file;
mod frozen;
mod judge;
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

pub use file::Precision;
pub use judge::{Acceptance, Judgement, TEMPERATURE};
pub use options::{RunOptions, TrainOptions};
pub use plan::HeadPlan;
pub use progress::{Event, StepReport};
pub use trainer::{Outcome, Trainer};
