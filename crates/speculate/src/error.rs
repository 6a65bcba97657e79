//! Errors in a request's parameters, and errors that end a sequence.

use selfspec_model::{BackendError, LogitsError, SeqId, TokenId};

/// A parameter out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParamError {
    /// A number out of its range.
    #[error("{field}: {value} is not {expected}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A logit bias that is not a finite number.
    #[error("logit_bias: the bias {bias} of token {token} is not a finite number")]
    Bias {
        /// The token.
        token: TokenId,
        /// Its bias.
        bias: f64,
    },
    /// A token outside the vocabulary.
    #[error("{field}: token {token} at index {index} is not in a vocabulary of {vocab}")]
    UnknownToken {
        /// The field.
        field: &'static str,
        /// Index in the field's list.
        index: usize,
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The prompt has no token.
    #[error("prompt: it is empty, at least one token is needed")]
    EmptyPrompt,
    /// The prompt leaves no place for a token.
    #[error("prompt: its {len} tokens do not fit a context of {context} with room for one more")]
    PromptTooLong {
        /// Tokens of the prompt.
        len: usize,
        /// The context length.
        context: usize,
    },
    /// A layer plan for a model of another depth.
    #[error("drafter: the plan is for {plan} layers, the model has {model}")]
    PlanDepth {
        /// Layers that the plan is for.
        plan: usize,
        /// Layers of the model.
        model: usize,
    },
    /// An exit head is asked for, and the model has none.
    #[error("drafter: the model has no exit head")]
    NoExitHead,
    /// A layer plan that skips nothing.
    #[error("drafter: the plan runs all {n_layers} layers, which is no draft")]
    PlanIsFull {
        /// Layers of the model.
        n_layers: usize,
    },
}

impl ParamError {
    /// The parameter that is out of its range.
    pub fn field(&self) -> &'static str {
        match self {
            ParamError::OutOfRange { field, .. } | ParamError::UnknownToken { field, .. } => field,
            ParamError::Bias { .. } => "logit_bias",
            ParamError::EmptyPrompt | ParamError::PromptTooLong { .. } => "prompt",
            ParamError::PlanDepth { .. } | ParamError::PlanIsFull { .. } | ParamError::NoExitHead => "drafter",
        }
    }
}

/// An error that ends a sequence. Other sequences go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SequenceError {
    /// A parameter is out of its range.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// The model's logits cannot be sampled from.
    #[error("logits for position {pos}: {fault}")]
    Logits {
        /// Position of the token that was to be chosen.
        pos: usize,
        /// What is wrong.
        fault: LogitsError,
    },
    /// The constraint of the output, a grammar, cannot compute which tokens may follow.
    #[error("grammar at position {pos}: {why}")]
    Constraint {
        /// Position of the token that was to be chosen.
        pos: usize,
        /// What is wrong.
        why: String,
    },
    /// The step gave fewer rows than were asked for.
    #[error("the step gave {got} rows of logits from row {first}, {wanted} were asked for")]
    MissingLogits {
        /// Index of the sequence's first row.
        first: usize,
        /// Rows asked for.
        wanted: usize,
        /// Rows there.
        got: usize,
    },
    /// The backend refused to commit or roll back.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// After a round the cache does not hold one position fewer than tokens are committed.
    #[error("{seq:?}: the cache holds {got} positions after a round, {expected} expected")]
    KvLength {
        /// The sequence.
        seq: SeqId,
        /// Positions that it should hold.
        expected: usize,
        /// Positions that it holds.
        got: usize,
    },
    /// The sequence has failed before and takes no more rows.
    #[error("{0:?} has failed before")]
    Failed(SeqId),
}
