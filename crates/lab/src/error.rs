//! What can go wrong in a measurement or a proof, with the facts.

use selfspec_engine::EngineError;
use selfspec_kernels::KernelError;
use selfspec_model::{BackendError, PlanError};

use crate::exit_layer::ExitLayerError;
use crate::prompts::PromptsError;
use crate::statistics::ExactnessError;

/// Why a measurement or a proof has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backend refused a row.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The instruction set is unknown or missing.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A plan does not fit the model.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The prompts cannot be used.
    #[error(transparent)]
    Prompts(#[from] PromptsError),
    /// There are no prompts to run.
    #[error("there are no prompts")]
    NoPrompts,
    /// A prompt failed.
    #[error("the prompt of line {line}")]
    Prompt {
        /// The prompt's line.
        line: usize,
        /// Why.
        source: EngineError,
    },
    /// A prompt failed that was decoded plainly, which leaves nothing to compare with.
    #[error("the prompt of line {line}, decoded plainly")]
    PlainPrompt {
        /// The prompt's line.
        line: usize,
        /// Why.
        source: EngineError,
    },
    /// A stage of a diagnosis failed.
    #[error("{stage}")]
    Stage {
        /// The stage.
        stage: &'static str,
        /// Why.
        source: Box<LabError>,
    },
    /// No prompt leaves room for an answer.
    #[error(
        "no prompt leaves room for an answer of {answer} tokens: the prompt of line {line} has {tokens} tokens, the model \
         takes {context} positions"
    )]
    NoRoom {
        /// Tokens of the shortest answer.
        answer: usize,
        /// The line of the longest prompt.
        line: usize,
        /// Its tokens.
        tokens: usize,
        /// Positions of the model's context.
        context: usize,
    },
    /// Neither a tuning nor an exit head has acceptance on record.
    #[error("no acceptance is on record to compare with")]
    NoRecordedAcceptance,
    /// A curve cannot be drawn.
    #[error("cannot draw a curve: {why}")]
    Drawing {
        /// Why.
        why: String,
    },
    /// A trial of rejection sampling failed.
    #[error("{place}")]
    Trial {
        /// The prompt's line and the exit.
        place: String,
        /// Why.
        source: ExactnessError,
    },
    /// An option cannot be used.
    #[error("{name}: {why}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An exit layer does not fit the model.
    #[error("exit layer {}: {source}", source.exit)]
    ExitLayer {
        /// Why.
        #[from]
        source: ExitLayerError,
    },
    /// The model's context is too short for a benchmark.
    #[error("bench needs a context of {needed} positions, this model has {has}")]
    ShortContext {
        /// Positions that the measurement needs.
        needed: usize,
        /// Positions of the model's context.
        has: usize,
        /// The longest context that can be measured, if there is one.
        longest: Option<usize>,
    },
}

impl LabError {
    /// The error with the stage in which it happened.
    pub(crate) fn in_stage(stage: &'static str) -> impl Fn(LabError) -> LabError {
        move |source| LabError::Stage { stage, source: Box::new(source) }
    }

    /// The engine's error behind this one, if there is one.
    pub fn engine(&self) -> Option<&EngineError> {
        match self {
            LabError::Engine(error)
            | LabError::Prompt { source: error, .. }
            | LabError::PlainPrompt { source: error, .. } => Some(error),
            LabError::Stage { source, .. } => source.engine(),
            _ => None,
        }
    }
}
