//! Drafting with the model itself: layer skip on some of its layers, with the model's norm and
//! head, or an exit head on its first layers.

use std::sync::Arc;

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterKind;
use crate::draft::path::DraftPath;

/// Drafts with rows of the model: layer skip, or an exit head.
#[derive(Debug)]
pub(crate) struct ModelDrafter {
    path: DraftPath,
    vocab: Option<Arc<[TokenId]>>, // the tokens of its logits, ascending; None: the whole vocabulary
    min_confidence: f32,
    expected_acceptance: Option<f64>,
}

impl ModelDrafter {
    /// Drafts on `path`, whose logits are those of the tokens of `vocab`, or of all tokens. A row
    /// whose confidence is below `min_confidence` proposes nothing.
    pub(crate) fn new(path: DraftPath, vocab: Option<Arc<[TokenId]>>, min_confidence: f32) -> Self {
        ModelDrafter { path, vocab, min_confidence, expected_acceptance: None }
    }

    /// Expects this acceptance rate, which training measured, until drafts were verified.
    pub(crate) fn with_expected_acceptance(self, rate: Option<f64>) -> Self {
        ModelDrafter { expected_acceptance: rate, ..self }
    }
}

impl Drafter for ModelDrafter {
    fn kind(&self) -> DrafterKind {
        if self.path.uses_exit_head() { DrafterKind::ExitHead } else { DrafterKind::LayerSkip }
    }

    fn path(&self) -> Option<&DraftPath> {
        Some(&self.path)
    }

    fn vocab(&self) -> Option<&[TokenId]> {
        self.vocab.as_deref()
    }

    fn min_confidence(&self) -> f32 {
        self.min_confidence
    }

    fn has_trained_confidence(&self) -> bool {
        self.path.uses_exit_head()
    }

    fn expected_acceptance(&self) -> Option<f64> {
        self.expected_acceptance
    }

    fn offer(&mut self, _: &[TokenId], _: &[TokenId]) -> Option<usize> {
        Some(0)
    }
}
