//! [`BackboneEvent`]: the events of a whole model's training.

use std::path::PathBuf;

use serde::Serialize;

/// An event of a whole model's training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum BackboneEvent {
    /// A step was taken.
    Step(BackboneStep),
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
pub struct BackboneStep {
    /// Number of the step, counted from 1.
    pub step: usize,
    /// Steps of the whole training.
    pub steps: usize,
    /// Mean cross-entropy after all layers that ran, in nats. Not finite if the batch was skipped
    /// for it.
    pub loss: f64,
    /// The number of layers and the loss of each exit that counted in the step.
    pub exits: Vec<(usize, f64)>,
    /// Share of the layers of all spans that were skipped.
    pub left_out: f64,
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
