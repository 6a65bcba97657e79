//! The stop rule: when a round of the model's drafts ends before its planned length.
//!
//! The confidence of each draft row decides anew. A draft whose expected acceptance is worth less
//! than its row of the verification is left out and ends the draft. Another draft is made only
//! where it is likely enough to be worth both its own row and its row of the verification.
//!
//! Invariant: the rule reads the row's distribution, never the token drawn from it. So sampled
//! output keeps the model's distribution.

use std::ops::Range;

use selfspec_model::{DraftStopPlace, DraftStopRule};

use crate::policy::acceptance::AcceptanceChain;
use crate::policy::confidence::{ConfidenceRecord, EDGES};
use crate::policy::draft_prices::DraftPrices;

/// Requests a row's confidence where every draft is taken: 0 would skip computing it.
const ANY_CONFIDENCE: f32 = f32::MIN_POSITIVE;

/// Decides, draft by draft, how far one round goes.
#[derive(Debug, Clone)]
pub(crate) struct StopRule {
    tokens_per_plain_step: f64, // that a plain step's time yields at the predicted speed; at least 1
    chain: AcceptanceChain,
    prices: DraftPrices,
    bonus: bool,
    trained_confidence: bool,
    others: ConfidenceRecord, // of other sequences' drafts
    reached: f64,             // expected acceptance of all drafts of the round so far
}

impl StopRule {
    /// A rule for a round with a predicted `speedup`, an expected acceptance by place, and
    /// `others`, the record of other sequences. `trained_confidence`: see
    /// [`Drafter::has_trained_confidence`](crate::draft::drafter::Drafter::has_trained_confidence).
    pub(crate) fn new(
        speedup: f64,
        chain: AcceptanceChain,
        prices: DraftPrices,
        bonus: bool,
        trained_confidence: bool,
        others: ConfidenceRecord,
    ) -> Self {
        let tokens_per_plain_step = speedup.max(1.0);
        StopRule { tokens_per_plain_step, chain, prices, bonus, trained_confidence, others, reached: 1.0 }
    }

    /// The least acceptance to expect of draft `i` (from 0) at a confidence that was never
    /// verified. A trained confidence is trusted as it is; an untrained one is tested.
    fn untested_acceptance(&self, i: usize) -> f64 {
        if self.trained_confidence { 0.0 } else { self.chain.get(i).copied().unwrap_or(0.0) }
    }

    /// The confidence below which the row for draft `i` (from 0) proposes nothing, by the
    /// sequence's `own` record.
    pub(crate) fn min_confidence(&self, own: &ConfidenceRecord, i: usize) -> f32 {
        let wanted = self.tokens_per_plain_step * self.prices.added_row(i, self.bonus) / self.reached;
        own.min_confidence(&self.others, self.untested_acceptance(i), wanted).max(ANY_CONFIDENCE)
    }

    /// The rule for drafts at these places, by the sequence's `own` record, as data for a device.
    /// It decides as the methods below do, for a sequence that no other waits for.
    pub(crate) fn as_data(&self, own: &ConfidenceRecord, places: Range<usize>) -> DraftStopRule {
        let place = |i: usize| DraftStopPlace {
            acceptance: own.curve(&self.others, self.untested_acceptance(i)).to_vec(),
            verify_price: self.tokens_per_plain_step * self.prices.added_row(i, self.bonus),
            next_acceptance: self.chain.get(i + 1).copied().unwrap_or(0.0),
            next_price: self.next_price(i + 1, 1.0),
        };
        let (edges, places) = (EDGES.to_vec(), places.map(place).collect());
        DraftStopRule { edges, places, reached: self.reached, ..DraftStopRule::default() }
    }

    /// What another draft after `drafted` must be expected to bring, if `waiting` sequences wait
    /// for it.
    fn next_price(&self, drafted: usize, waiting: f64) -> f64 {
        let price = self.prices.draft_step * waiting + self.prices.added_row(drafted, self.bonus);
        self.tokens_per_plain_step * price
    }

    /// Adds the `drafted`-th draft of the round, and says whether another one is worth its row and
    /// its verification.
    pub(crate) fn continues_after(&mut self, own: &ConfidenceRecord, drafted: usize, confidence: f32) -> bool {
        self.reached *= own.acceptance(&self.others, self.untested_acceptance(drafted - 1), confidence);
        self.is_worth(drafted, 1.0)
    }

    /// Whether another draft after `drafted` is worth `waiting` draft steps: one for each sequence
    /// that waits for it or drafts with it.
    pub(crate) fn is_worth(&self, drafted: usize, waiting: f64) -> bool {
        let next = self.reached * self.chain.get(drafted).copied().unwrap_or(0.0);
        next >= self.next_price(drafted, waiting)
    }
}
