//! Trains exit heads for a frozen model, and whole models for early exit (layer skip).
//!
//! An exit head (`selfspec_model::ExitHead`) is one small layer that predicts the output of the
//! whole model, so that speculation has drafts to verify. Training never changes the model's
//! output: a head decides about speed only.
//!
//! 1. The caller supplies texts with the model's own answers ([`Corpus`]), chooses a draft
//!    vocabulary ([`frequent_tokens`]), and lets the model compute its hidden states once
//!    ([`HiddenStateCache`], through a [`HiddenStateSource`]).
//! 2. A [`HeadTrainer`] takes steps: a rollout of drafts from every position of every text, the
//!    loss against the full model's distribution, the gradient, AdamW. It saves its state, and
//!    resumes bit for bit.
//! 3. The result is evaluated on held-out texts ([`HeadEvaluation`]) and written to a file
//!    ([`HeadTrainer::write_head`]).
//!
//! A [`BackboneTrainer`] does the same for all layers of a model, with layer dropout and early-exit
//! losses.
//!
//! Everything is plain Rust on slices. The gradient is written by hand, and tests compare it with
//! finite differences of a separate computation in f64. The same texts, options and seed give the
//! same bits on any number of threads.
//!
//! | module | holds |
//! |---|---|
//! | `data` | texts, draft vocabularies, hidden states, and the rows made of them |
//! | `math` | loops over rows of floats, random numbers |
//! | `layer` | one decoder layer: shape, weights, forward and backward pass |
//! | `steps` | batches, schedules, the optimizer, the state on disk |
//! | `head` | the exit head's trainer |
//! | `backbone` | the whole model's trainer |
#![forbid(unsafe_code)]

mod backbone;
mod data;
mod error;
mod head;
mod layer;
mod math;
mod steps;

pub use backbone::{
    BackboneEvent, BackboneOptions, BackboneRun, BackboneStep, BackboneTrainer, Curriculum, ExitPerplexity,
    Perplexities, TokenSpans,
};
pub use data::corpus::{Corpus, TrainingText};
pub use data::states::{HiddenStateCache, HiddenStateSource};
pub use data::vocab::{coverage, frequent_tokens};
pub use error::TrainError;
pub use head::{
    HeadEvaluation, HeadOptions, HeadPlan, HeadPrecision, HeadRun, HeadStep, HeadTrainer, HeadTrainingEvent,
    HeldOutAcceptance, TEMPERATURE, TrainingResult,
};
pub use steps::schedule::TrainingSchedule;
