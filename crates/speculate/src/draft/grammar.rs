//! Drafting the tokens that the output's grammar forces. They need no draft pass.

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterKind;
use crate::sample::sampler::DraftToken;

/// Expected acceptance rate of forced tokens. A grammar forces bytes, and the model may cut the
/// same bytes into other tokens.
const EXPECTED_ACCEPTANCE: f64 = 0.97;

/// Proposes the tokens that must come next.
#[derive(Debug, Default)]
pub(crate) struct GrammarDrafter {
    forced: Vec<TokenId>, // as last offered
}

impl Drafter for GrammarDrafter {
    fn kind(&self) -> DrafterKind {
        DrafterKind::Grammar
    }

    fn expected_acceptance(&self) -> Option<f64> {
        Some(EXPECTED_ACCEPTANCE)
    }

    fn offer(&mut self, _: &[TokenId], forced: &[TokenId]) -> Option<usize> {
        forced.clone_into(&mut self.forced);
        (!forced.is_empty()).then_some(0)
    }

    fn copy(&mut self, _: &[TokenId], k: usize, drafts: &mut Vec<DraftToken>) {
        drafts.extend(self.forced.iter().take(k).map(|token| DraftToken::point(*token)));
    }
}
