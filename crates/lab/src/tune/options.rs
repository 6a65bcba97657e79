//! What a tuning tries.

use std::path::PathBuf;

use selfspec_engine::EngineOptions;

use crate::prompts::PromptStyle;

/// What a tuning tries, and what its file says about itself.
#[derive(Debug, Clone)]
pub struct TuneOptions {
    /// Engines to measure with; the tuning sets their `max_batch`.
    pub engine: EngineOptions,
    /// How the prompts are given to the model.
    pub style: PromptStyle,
    /// Most tokens to generate for each prompt.
    pub max_tokens: usize,
    /// Temperature of every request.
    pub temperature: f32,
    /// Exit layers that are tried; empty: ten over the depth. Shape: (exit).
    pub exits: Vec<usize>,
    /// Contexts at which costs are measured, in positions; the first decides. Shape: (context).
    pub contexts: Vec<usize>,
    /// Tokens of the draft vocabulary of layer skip; 0: all of the model's; none: 8192, at most a
    /// quarter of the model's.
    pub draft_vocab: Option<usize>,
    /// Name of the model, if its files have none.
    pub model: String,
    /// Name of the prompts.
    pub prompts: String,
    /// The exit head's file, if it is not the built-in one.
    pub exit_head: Option<PathBuf>,
}
