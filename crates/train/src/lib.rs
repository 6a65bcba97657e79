//! Trains exit heads for a frozen model, and whole models to leave early (`backbone`).
//!
//! An exit head (`selfspec_model::ExitHead`) is one small layer that predicts what the whole model will say, so that speculation has something to
//! verify. Whatever it learns, the model's output stays as it is: a head decides about speed only.
//!
//! 1. The caller has texts with answers of the model itself ([`Corpus`]), chooses a draft vocabulary ([`frequent_tokens`]), and lets the model's
//!    hidden states be computed once ([`StateCache`], through a [`StateSource`]).
//! 2. A [`Trainer`] takes steps: a rollout of drafts from every position of every text (`rollout.rs`), the loss against the full model's distribution
//!    (`loss.rs`), the gradient, AdamW. It saves its state, and goes on bit for bit where it was.
//! 3. The result is judged on texts that were held out ([`Judgement`]) and written to a file ([`Trainer::write_head`]).
//!
//! Everything is plain Rust on slices: the gradient is written by hand, and checked against finite differences of a computation in f64 that shares
//! nothing with it. The same texts, options and seed give the same bits on any number of threads.
#![forbid(unsafe_code)]

mod backbone;
mod data;
mod error;
mod head;
mod layer;
mod math;
mod steps;

pub use backbone::{
    BackboneEvent, BackboneOptions, BackboneRun, BackboneStep, BackboneTrainer, Curriculum, Perplexities, Reading,
    Spans,
};
pub use data::corpus::{Corpus, Text};
pub use data::states::{StateCache, StateSource};
pub use data::vocab::{coverage, frequent_tokens};
pub use error::TrainError;
pub use head::{
    Acceptance, Event, HeadPlan, Judgement, Outcome, Precision, RunOptions, StepReport, TEMPERATURE, TrainOptions,
    Trainer,
};
pub use steps::schedule::Schedule;
