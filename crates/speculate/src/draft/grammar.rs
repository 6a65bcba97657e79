//! Drafting what the output's grammar forces: tokens that nothing else can stand for cost no model to guess.

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::sample::sampler::Draft;
use crate::stats::DrafterKind;

/// How often what a grammar forces stands: a token may be forced only as far as its bytes are.
const PRIOR: f64 = 0.97;

/// Proposes the tokens that must come next.
#[derive(Debug, Default)]
pub(crate) struct GrammarDrafter {
    forced: Vec<TokenId>, // as last offered
}

impl Drafter for GrammarDrafter {
    fn kind(&self) -> DrafterKind {
        DrafterKind::Grammar
    }

    fn prior(&self) -> Option<f64> {
        Some(PRIOR)
    }

    fn offer(&mut self, _: &[TokenId], forced: &[TokenId]) -> Option<usize> {
        forced.clone_into(&mut self.forced);
        (!forced.is_empty()).then_some(0)
    }

    fn copy(&mut self, _: &[TokenId], k: usize, drafts: &mut Vec<Draft>) {
        drafts.extend(self.forced.iter().take(k).map(|token| Draft::point(*token)));
    }
}
