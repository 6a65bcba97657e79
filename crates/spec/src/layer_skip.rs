//! Layer skip: the draft model is the model itself on some of its layers, with its own final norm and head.

use selfspec_model::{LayerPlan, TokenId};

use crate::drafter::Drafter;
use crate::history::History;
use crate::noise::Place;
use crate::sampler::{Draft, Sampler};
use crate::stats::DrafterKind;

/// Drafts with a [`LayerPlan`]: an early exit, or skipped middle layers.
#[derive(Debug)]
pub struct LayerSkip {
    plan: LayerPlan,
    min_confidence: f32,
}

impl LayerSkip {
    /// Drafts on `plan`, and stops before a token whose row is less sure than `min_confidence`.
    pub fn new(plan: LayerPlan, min_confidence: f32) -> Self {
        LayerSkip { plan, min_confidence }
    }
}

impl Drafter for LayerSkip {
    fn kind(&self) -> DrafterKind {
        DrafterKind::LayerSkip
    }

    fn plan(&self) -> Option<&LayerPlan> {
        Some(&self.plan)
    }

    fn offer(&mut self, _: &[TokenId]) -> Option<usize> {
        Some(0)
    }

    fn copy(&mut self, _: &[TokenId], _: usize, _: &mut Vec<Draft>) {}

    fn read(&mut self, logits: &[f32], sampler: &mut Sampler, history: &History, at: Place) -> Option<Draft> {
        sampler.draft(logits, history, at, self.min_confidence)
    }
}
