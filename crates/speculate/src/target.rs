//! What a sequence must know of the model that it runs on.

use std::sync::Arc;

use selfspec_model::{Backend, ExitHeadInfo, TokenId};

/// What a sequence must know of the model that it runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Layers.
    pub n_layers: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Longest sequence, in positions.
    pub context: usize,
    /// The tokens that layer skip may be held to, ascending; see [`Backend::draft_vocab`].
    pub draft_vocab: Option<Arc<[TokenId]>>,
    /// The exit head, if the model has one.
    pub exit_head: Option<ExitHeadInfo>,
}

impl Target {
    /// The model of `backend`.
    pub fn of(backend: &dyn Backend) -> Self {
        Target {
            n_layers: backend.n_layers(),
            vocab: backend.vocab(),
            context: backend.context(),
            draft_vocab: backend.draft_vocab().cloned(),
            exit_head: backend.exit_head().cloned(),
        }
    }
}
