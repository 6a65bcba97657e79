//! The facts about the model that a sequence needs.

use std::sync::Arc;

use selfspec_model::{Backend, ExitHeadInfo, TokenId};

/// The facts about the model that a sequence needs.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetModel {
    /// Number of layers.
    pub n_layers: usize,
    /// Size of the vocabulary, in tokens.
    pub vocab: usize,
    /// Longest sequence, in positions.
    pub context: usize,
    /// The tokens that layer skip may be limited to, ascending; see [`Backend::draft_vocab`].
    pub draft_vocab: Option<Arc<[TokenId]>>,
    /// The exit head, if the model has one.
    pub exit_head: Option<ExitHeadInfo>,
}

impl TargetModel {
    /// The model of `backend`.
    pub fn of(backend: &dyn Backend) -> Self {
        TargetModel {
            n_layers: backend.n_layers(),
            vocab: backend.vocab(),
            context: backend.context(),
            draft_vocab: backend.draft_vocab().cloned(),
            exit_head: backend.exit_head().cloned(),
        }
    }
}
