//! [`HeadTrainingEvent`]: the events of a head's training.

use std::path::PathBuf;

use serde::Serialize;

use crate::head::evaluation::HeadEvaluation;

/// An event of a head's training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum HeadTrainingEvent {
    /// A step was taken.
    Step(HeadStep),
    /// The head was evaluated on the held-out texts.
    Evaluated {
        /// Steps taken before.
        step: usize,
        /// The result.
        evaluation: HeadEvaluation,
    },
    /// The state was saved.
    Saved {
        /// Steps taken before.
        step: usize,
        /// The file.
        path: PathBuf,
    },
}

/// A step of a training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadStep {
    /// Number of the step, counted from 1.
    pub step: usize,
    /// Steps of the whole training.
    pub steps: usize,
    /// Epochs completed after it, approximately.
    pub epochs: f64,
    /// The loss. Not finite if the batch was skipped.
    pub loss: f64,
    /// Divergence KL(p | q) in nats, of the first draft of a round, of the second, and so on.
    pub divergence: Vec<f64>,
    /// Sum of min(p, q) at temperature 1 over the draft vocabulary, of the same.
    pub overlap: Vec<f64>,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Learning rate.
    pub learning_rate: f32,
    /// Whether the batch was skipped because its loss or gradient was not finite.
    pub skipped: bool,
    /// Tokens of the batch.
    pub tokens: usize,
    /// Mean tokens per second since the start of the run.
    pub tokens_per_second: f64,
    /// Seconds for the remaining steps at that speed.
    pub seconds_left: f64,
}
