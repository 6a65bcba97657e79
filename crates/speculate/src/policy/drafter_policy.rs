//! The policy of one drafter: what its drafts are expected to gain, and whether it drafts, probes
//! or pauses.
//!
//! A drafter that does not pay is tried again now and then by cheap **probes**. With layer skip, a
//! probe is one draft without a bonus row: it costs a plain step and one more readout of the head.
//! With prompt lookup, a probe is two drafts.

use crate::draft::drafter::{Drafter, OFFER_KINDS};
use crate::draft::params::{DraftLen, MAX_DRAFT};
use crate::policy::acceptance::AcceptanceChain;
use crate::policy::confidence::ConfidenceRecord;
use crate::policy::cost::model::CostModel;
use crate::policy::draft_prices::DraftPrices;
use crate::policy::drafter_off::{DrafterOff, DrafterOffCause};
use crate::policy::loss_budget::LossBudget;
use crate::policy::offer_record::OfferRecord;
use crate::policy::round_reason::RoundReason;
use crate::policy::window_draft_len::DraftLenWindow;

/// Expected speed-up over plain decoding from which a drafter drafts.
const MIN_SPEEDUP: f64 = 1.04;
/// The same for drafting with the model in a batch. Rounds of other sequences end at other times,
/// and no prediction contains the time that one waits for another.
pub(crate) const MIN_SPEEDUP_IN_BATCH: f64 = 1.15;
/// Verified drafts before a prediction counts.
const ENOUGH_JUDGED: f64 = 3.0;
/// Weight, in verified drafts, of the acceptance rate that training measured.
const TRAINED_PRIOR_WEIGHT: f64 = 6.0;
/// A sequence's verified drafts at which the weight of its prior has halved.
const PRIOR_HALF_LIFE: f64 = 6.0;
/// The optimistic prior of drafting with the model: 2 of 3 drafts accepted. A drafter that is tried
/// too little costs a probe; one that is given up too early costs the gain.
const MODEL_PRIOR: (f64, f64) = (2.0, 3.0);
/// Expected acceptance rate of a copy, by the length of the match: 1, 2, 3, and 4 or more tokens.
const COPY_PRIOR: [f64; 4] = [0.25, 0.4, 0.55, 0.65];
/// Weight, in verified drafts, of that rate.
const COPY_PRIOR_WEIGHT: f64 = 2.0;

/// A drafter, the records of its offers, and its loss budget, in one sequence.
#[derive(Debug)]
pub(crate) struct DrafterPolicy {
    pub(crate) drafter: Box<dyn Drafter>,
    pub(crate) window: DraftLenWindow,
    pub(crate) offers: [OfferRecord; OFFER_KINDS],
    pub(crate) confidence: ConfidenceRecord,
    pub(crate) budget: LossBudget,
}

/// What to do with an offer.
#[derive(Debug)]
pub(crate) enum OfferDecision {
    /// Draft `k` tokens: the expected speed-up is high enough.
    Draft { k: usize, speedup: f64, chain: AcceptanceChain },
    /// Draft `k` tokens to measure their acceptance; see [`crate::policy::choice::DraftChoice`].
    Probe { k: usize, bonus: bool, last_try: bool, speedup: f64 },
    /// Draft nothing.
    Pause(RoundReason),
}

/// The expected acceptance of an offer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedAcceptance {
    rate: f64,
    pub(crate) chain: AcceptanceChain,
    judged: f64, // verified drafts behind it, priors included
    enough: bool,
}

impl DrafterPolicy {
    /// A drafter that has drafted nothing. `max_loss`: see [`LossBudget::new`].
    pub(crate) fn new(drafter: Box<dyn Drafter>, max_loss: Option<f64>) -> Self {
        let budget = LossBudget::new(drafter.path().is_some(), max_loss);
        DrafterPolicy {
            drafter,
            window: DraftLenWindow::new(),
            offers: std::array::from_fn(|_| OfferRecord::default()),
            confidence: ConfidenceRecord::default(),
            budget,
        }
    }

    /// The draft length as requested, whatever it costs.
    pub(crate) fn requested_draft_len(&self, draft_len: DraftLen) -> usize {
        match draft_len {
            DraftLen::Fixed(k) => k,
            DraftLen::Adaptive | DraftLen::Window => self.window.draft_len(),
        }
    }

    /// Why the drafter is off; `None` while one of its offers drafts, or none was made.
    pub(crate) fn off(&self) -> Option<&DrafterOff> {
        let mut offered = self.offers.iter().filter(|offer| offer.was_offered());
        let first = offered.next()?.off.as_ref()?;
        offered.all(|offer| offer.off.is_some()).then_some(first)
    }

    /// Decides about an offer at these prices, after `generated` tokens.
    pub(crate) fn decide(
        &mut self,
        prices: &DraftPrices,
        offer: usize,
        (draft_len, bonus): (DraftLen, bool),
        generated: usize,
        costs: &CostModel,
    ) -> OfferDecision {
        let runs_model = self.drafter.path().is_some();
        let expected = self.expected_acceptance(offer, costs);
        let (best, _) = prices.best_draft_len(&expected.chain, bonus);
        let k = match draft_len {
            DraftLen::Fixed(k) => k,
            DraftLen::Adaptive => best,
            DraftLen::Window => self.window.draft_len().min(best.max(2)),
        };
        let speedup = prices.speedup(&expected.chain, k, bonus);
        let min_speedup = if runs_model && costs.batch() > 1 { MIN_SPEEDUP_IN_BATCH } else { MIN_SPEEDUP };
        // The sliding window's rule for long contexts: the model does not draft where one draft is
        // best.
        let too_short = runs_model && draft_len == DraftLen::Window && best < 2;
        let against = if speedup < min_speedup {
            Some(DrafterOffCause::Unprofitable { speedup })
        } else if too_short {
            Some(DrafterOffCause::BestLengthOne { speedup })
        } else if self.budget.is_spent(generated) {
            Some(DrafterOffCause::LossBudgetSpent { lost: self.budget.lost() })
        } else {
            None
        };
        let first = self.offers[offer].record_offer();
        if against.is_none() && expected.enough {
            self.offers[offer].turn_on();
            return OfferDecision::Draft { k, speedup, chain: expected.chain };
        }
        if self.offers[offer].turn_off() {
            self.offers[offer].pause(generated);
        } else if first && expected.enough {
            self.offers[offer].delay_probe(generated); // other sequences have tried already
        }
        // The acceptance leans on a prior: without verified drafts there are no figures to report.
        if let Some(cause) = against.filter(|_| expected.judged > 0.0 && self.offers[offer].off.is_none()) {
            self.offers[offer].off = Some(DrafterOff {
                drafter: self.drafter.kind(),
                cause,
                acceptance: expected.rate,
                judged: self.offers[offer].acceptance.all.judged,
                draft_step: self.drafter.path().map(|path| (path.clone(), prices.draft_step)),
                draft_len: k,
                verification: prices.verification(k, bonus),
            });
        }
        let (k, probe_bonus) = if runs_model { (1, false) } else { (2, bonus) };
        let price = (prices.draft_step + prices.verification(k, probe_bonus) - 1.0).max(0.0);
        let hopeless = prices.best_draft_len(&[1.0; MAX_DRAFT], bonus).1 < min_speedup;
        if hopeless || self.offers[offer].is_paused(generated) || !self.budget.affords(price, generated) {
            return OfferDecision::Pause(match against {
                None | Some(DrafterOffCause::Unprofitable { .. }) => RoundReason::Unprofitable { speedup },
                Some(DrafterOffCause::BestLengthOne { .. }) => RoundReason::BestLengthOne { speedup },
                Some(DrafterOffCause::LossBudgetSpent { lost }) => RoundReason::LossBudgetSpent { lost },
            });
        }
        self.offers[offer].begin_probe();
        let last_try = expected.judged + 1.0 >= ENOUGH_JUDGED;
        OfferDecision::Probe { k, bonus: probe_bonus, last_try, speedup }
    }

    /// The expected acceptance of an offer, by the sequence's own drafts and a prior.
    pub(crate) fn expected_acceptance(&self, offer: usize, costs: &CostModel) -> ExpectedAcceptance {
        let record = &self.offers[offer].acceptance;
        let own = record.all;
        let (rate, judged, enough) = match self.drafter.path() {
            Some(path) => {
                // Other sequences' drafts, or training's figures, give way to the sequence's own.
                let (accepted, judged) = match (costs.acceptance_prior(path), self.drafter.expected_acceptance()) {
                    ((_, 0.0), Some(rate)) => (rate * TRAINED_PRIOR_WEIGHT, TRAINED_PRIOR_WEIGHT),
                    (others, _) => others,
                };
                let scale = PRIOR_HALF_LIFE / (PRIOR_HALF_LIFE + own.judged);
                let (a, n) = (own.accepted + accepted * scale, own.judged + judged * scale);
                ((a + MODEL_PRIOR.0) / (n + MODEL_PRIOR.1), n, n >= ENOUGH_JUDGED)
            }
            None => {
                let by_length = COPY_PRIOR[offer.clamp(1, 4) - 1];
                let prior = self.drafter.expected_acceptance().unwrap_or(by_length);
                let rate = (own.accepted + COPY_PRIOR_WEIGHT * prior) / (own.judged + COPY_PRIOR_WEIGHT);
                (rate, own.judged, true)
            }
        };
        ExpectedAcceptance { rate, chain: record.chain(rate), judged, enough }
    }
}

#[cfg(test)]
mod tests {
    use selfspec_model::{LayerPlan, Readout};

    use super::*;
    use crate::draft::model_layers::ModelDrafter;
    use crate::draft::path::DraftPath;
    use crate::policy::acceptance::AcceptanceCounts;
    use crate::policy::cost::rows::{plain_row, row};

    /// Layer skip with a known acceptance, on a cost model with a known c.
    fn decide(c: f64, accepted: f64, judged: f64) -> (OfferDecision, Option<DrafterOff>) {
        let plan = LayerPlan::exit(10, 5).expect("valid");
        let mut costs = CostModel::new();
        let path = DraftPath { plan: plan.clone(), readout: Readout::Head };
        costs.record(&[plain_row(10)], 1.0);
        costs.record(&[row(0, selfspec_model::Enter::Token, &plan)], c);
        let mut policy = DrafterPolicy::new(Box::new(ModelDrafter::new(path.clone(), None, 0.0)), None);
        policy.offers[0].acceptance.all = AcceptanceCounts { accepted, judged };
        let prices = DraftPrices::new(costs.at(0), Some(&path));
        let decision = policy.decide(&prices, 0, (DraftLen::Window, true), 100, &costs);
        (decision, policy.off().cloned())
    }

    /// At long contexts attention makes c grow. Where only one draft pays, layer skip is off, and
    /// it says why.
    #[test]
    fn layer_skip_is_off_where_the_best_draft_length_is_below_two() {
        assert!(matches!(decide(0.3, 24.0, 32.0), (OfferDecision::Draft { k: 2.., .. }, None)));
        let (decision, off) = decide(0.42, 24.0, 37.0);
        assert!(!matches!(decision, OfferDecision::Draft { .. }));
        let off = off.expect("off");
        assert!(matches!(off.cause, DrafterOffCause::BestLengthOne { .. }) && off.acceptance < 1.0, "{off:?}");
        let (_, off) = decide(0.5, 2.0, 20.0);
        let off = off.expect("off");
        assert!(matches!(off.cause, DrafterOffCause::Unprofitable { speedup } if speedup < 1.0), "{off:?}");
        assert!(off.draft_step.is_some_and(|(path, cost)| cost == 0.5 && path.to_string() == "layers 0..5"));
    }
}
