//! What a training tells of itself while it runs.

use std::path::PathBuf;

use serde::Serialize;

use crate::head::judge::Judgement;

/// Something that a training tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Event {
    /// A step was taken.
    Step(StepReport),
    /// The head was judged on the texts that are held out.
    Judged {
        /// Steps taken before.
        step: usize,
        /// How it does.
        judgement: Judgement,
    },
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
pub struct StepReport {
    /// Its number, counted from 1.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// Times that every text has been seen after it, about.
    pub epochs: f64,
    /// Its loss. Not finite where the batch was skipped.
    pub loss: f64,
    /// Divergence KL(p | q) in nats, of the first draft of a round, of the second, and so on.
    pub divergence: Vec<f64>,
    /// Sum of min(p, q) at temperature 1 over the draft vocabulary, of the same.
    pub overlap: Vec<f64>,
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
