//! Drafting with the model itself: on some of its layers with its own norm and head, or on its first layers with an exit head.

use std::sync::Arc;

use selfspec_model::{Readout, TokenId};

use crate::draft::drafter::Drafter;
use crate::draft::path::DraftPath;
use crate::sample::history::History;
use crate::sample::mask::Mask;
use crate::sample::noise::Place;
use crate::sample::sampler::{Draft, LogitsRow, Sampler};
use crate::stats::DrafterKind;

/// Drafts with rows of the model: layer skip, or an exit head.
#[derive(Debug)]
pub struct ModelDrafter {
    path: DraftPath,
    vocab: Option<Arc<[TokenId]>>, // the tokens of its logits; None: all
    min_confidence: f32,
    prior: Option<f64>,
}

impl ModelDrafter {
    /// Drafts on `path`, whose logits are those of the tokens `vocab`, or of all; stops before a token whose row is less sure than `min_confidence`.
    pub fn new(path: DraftPath, vocab: Option<Arc<[TokenId]>>, min_confidence: f32) -> Self {
        ModelDrafter { path, vocab, min_confidence, prior: None }
    }

    /// Is expected to have this acceptance until more is known.
    pub fn with_prior(self, prior: Option<f64>) -> Self {
        ModelDrafter { prior, ..self }
    }
}

impl Drafter for ModelDrafter {
    fn kind(&self) -> DrafterKind {
        if self.path.readout == Readout::ExitHead { DrafterKind::ExitHead } else { DrafterKind::LayerSkip }
    }

    fn path(&self) -> Option<&DraftPath> {
        Some(&self.path)
    }

    fn prior(&self) -> Option<f64> {
        self.prior
    }

    fn offer(&mut self, _: &[TokenId], _: &[TokenId]) -> Option<usize> {
        Some(0)
    }

    fn read(
        &mut self,
        logits: &[f32],
        mask: Option<&Mask>,
        sampler: &mut Sampler,
        history: &History,
        at: Place,
        min_confidence: f32,
    ) -> Option<Draft> {
        let row = LogitsRow { logits, tokens: self.vocab.as_deref(), mask };
        sampler.draft(row, history, at, self.min_confidence.max(min_confidence))
    }
}
