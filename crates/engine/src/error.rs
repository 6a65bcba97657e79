//! What can go wrong, with the facts.

use std::path::PathBuf;

use selfspec_kernels::KernelError;
use selfspec_model::{BackendError, ExitHeadError, ModelError};
use selfspec_spec::SpecError;
use selfspec_text::TextError;
use selfspec_weights::WeightsError;

/// Why a model cannot be opened, or a request not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model's files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The files do not hold a model that can be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The instruction set is unknown or missing.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The tokenizer or the chat template.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The sampling or speculation parameters, or a row of logits that holds no distribution.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The backend refused the request's row.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A file beside the weights cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file beside the weights does not say what it should.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The tuning beside the model cannot be used.
    #[error("{}: {why}", path.display())]
    Tuning {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An exit head cannot be used.
    #[error("{}: {source}", path.display())]
    ExitHead {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: ExitHeadError,
    },
    /// A field of the request or of the options cannot be served.
    #[error("{field}: {why}")]
    InvalidRequest {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Text was given or asked for, and the engine has no tokenizer.
    #[error("the model has no tokenizer: only token ids can be given, and no stop strings")]
    NoTokenizer,
    /// A conversation was given, and the model has no chat template.
    #[error("the model has no chat template: give the prompt as plain text")]
    NoChatTemplate,
    /// A conversation was given, and the model's chat template cannot be used.
    #[error("the model's chat template cannot be used: {why}")]
    BadChatTemplate {
        /// Why.
        why: String,
    },
    /// The prompt has no token, and the model no BOS to begin with.
    #[error("the prompt is empty, and the model has no BOS token to begin with")]
    EmptyPrompt,
    /// The prompt leaves no room to generate.
    #[error("the prompt has {tokens} tokens, the context {context} positions: no room to generate")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        context: usize,
    },
    /// The request needs more KV cache than there is.
    #[error(
        "{prompt} prompt tokens, {max_tokens} to generate and {draft_room} of room for drafts need {pages} KV pages of \
         {page_positions} positions, the cache has {total}"
    )]
    NeverFits {
        /// Tokens of the prompt.
        prompt: usize,
        /// Most tokens to generate.
        max_tokens: usize,
        /// Positions that drafts may take beyond them.
        draft_room: usize,
        /// Pages needed.
        pages: usize,
        /// Positions in a page.
        page_positions: usize,
        /// Pages of the whole cache.
        total: usize,
    },
    /// Something is asked for more often than can be done at a time; later it can.
    #[error("{what}: try again later")]
    Busy {
        /// What there is too much of.
        what: &'static str,
    },
    /// A thread panicked while it computed a step. Every request of that step ends so; the engine goes on.
    #[error("a step panicked: {message}")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// The engine was shut down, or its thread is gone.
    #[error("the engine has stopped")]
    Stopped,
}
