//! A whole draft of one sequence as one call.
//!
//! The stop rule is data, so that a device can evaluate it without a round trip for each token:
//! tables by the draft's place and by the bin of its confidence.

use crate::choice::{ChooseToken, LogitsError, TokenChoice};
use crate::output::StepOutput;
use crate::row::{Row, TokenId};

/// What a stop rule expects of a draft at one place, over a plain step's time.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftStopPlace {
    /// Expected acceptance by bin of confidence. Shape: (bin of [`DraftStopRule::edges`]).
    pub acceptance: Vec<f64>,
    /// What verifying the draft costs. A draft that is expected to bring less is left out.
    pub verify_price: f64,
    /// Expected acceptance of the next draft, whatever its confidence.
    pub next_acceptance: f64,
    /// What the next draft costs, with its verification.
    pub next_price: f64,
}

/// When a draft ends before its planned length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DraftStopRule {
    /// Tokens to draft at most; at least 1.
    pub most: usize,
    /// Confidence below which a draft is left out, whatever its place; 0: no bound.
    pub min_confidence: f32,
    /// Tokens that end a draft after them.
    pub ends: Vec<TokenId>,
    /// Lower edges of the bins of confidence, ascending from 0.
    pub edges: Vec<f32>,
    /// The places of the draft, from its first token on; empty: every draft is taken.
    pub places: Vec<DraftStopPlace>,
    /// Expected acceptance of all drafts that the round already has; 1 without any.
    pub reached: f64,
}

/// How a draft goes on after a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftStep {
    /// The token is drafted, and another row follows.
    Continue,
    /// The token is drafted, and it is the last one.
    Last,
    /// The token is left out, and the draft ends before it.
    Decline,
}

impl DraftStopRule {
    /// Judges the draft at `place`. `reached` is the expected acceptance of all drafts before it;
    /// it takes in that of the draft.
    pub fn judge(&self, place: usize, choice: &TokenChoice, reached: &mut f64) -> DraftStep {
        if choice.confidence < self.min_confidence {
            return DraftStep::Decline;
        }
        let mut more = place + 1 < self.most;
        if let Some(rule) = self.places.get(place) {
            let bin = self.edges.iter().rposition(|edge| choice.confidence >= *edge).unwrap_or(0);
            // A bin counts only as far as all bins above it are good enough too.
            let wanted = rule.verify_price / *reached;
            if rule.acceptance[bin..].iter().any(|acceptance| *acceptance < wanted) {
                return DraftStep::Decline;
            }
            *reached *= rule.acceptance[bin];
            more &= *reached * rule.next_acceptance >= rule.next_price;
        }
        if more && !self.ends.contains(&choice.token) { DraftStep::Continue } else { DraftStep::Last }
    }
}

/// A draft to make.
#[derive(Clone, Copy)]
pub struct DraftRequest<'a> {
    /// Its first row. Each later row is at the next position and feeds the token chosen from the
    /// row before.
    pub first: &'a Row,
    /// When it ends.
    pub stop: &'a DraftStopRule,
    /// Chooses the token of the draft's `i`-th row, for every i; called in this order.
    pub choose: &'a dyn ChooseToken,
}

/// A draft that was made.
#[derive(Debug, Default)]
pub struct DraftOutput {
    /// The drafted tokens, in order.
    pub drafts: Vec<TokenChoice>,
    /// Rows that were run: one more than tokens if the last one's was left out.
    pub rows: usize,
    /// Rows times layers that were computed.
    pub layer_rows: u64,
    /// The message of a panic in the choice of the last row's token.
    pub panic: Option<String>,
    pub(crate) step: StepOutput,
}

/// Chooses the only row of a step as row `row` of a draft.
pub(crate) struct ChooseRow<'a> {
    pub(crate) choose: &'a dyn ChooseToken,
    pub(crate) row: usize,
}

impl ChooseToken for ChooseRow<'_> {
    fn chooses(&self, _: usize) -> bool {
        true
    }

    fn choose(&self, _: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        self.choose.choose(self.row, logits)
    }
}
