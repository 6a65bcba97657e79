//! What the training of a whole model tells of itself while it runs.

use std::path::PathBuf;

use serde::Serialize;

/// Something that a training tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum BackboneEvent {
    /// A step was taken.
    Step(BackboneStep),
    /// The training's state was saved.
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
    /// Its number, counted from 1.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// Mean cross-entropy after all layers that ran, in nats. Not finite where the batch was skipped for it.
    pub loss: f64,
    /// That of each exit that counted in the step, with its number of layers.
    pub exits: Vec<(usize, f64)>,
    /// Share of the layers of all spans that were left out.
    pub left_out: f64,
    /// Norm of the gradient, before it was clipped.
    pub gradient_norm: f64,
    /// Learning rate.
    pub learning_rate: f32,
    /// Whether the batch was skipped since its loss or gradient was not finite.
    pub skipped: bool,
    /// Tokens of the batch.
    pub tokens: usize,
    /// Tokens a second, as a mean since the run began.
    pub tokens_per_second: f64,
    /// Seconds that the steps to come will take at that speed.
    pub seconds_left: f64,
}
