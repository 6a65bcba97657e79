//! The speculation policy of one sequence: the choice of each round.
//!
//! Of all drafters that have a proposal, and all draft lengths, the choice is the one with the
//! highest expected speed-up, if that is high enough; otherwise the round is plain. So a good match
//! in the prompt is copied, and where there is none the model drafts. Two things come before: a
//! probe of a drafter that is off runs where nothing else drafts, and a plain step runs now and
//! then to be timed.

use selfspec_model::{DraftStopRule, TokenId};

use crate::draft::drafter::Drafter;
use crate::draft::params::{DraftLen, SpeculationParams};
use crate::policy::choice::{DraftChoice, RoundResult};
use crate::policy::cost::model::CostModel;
use crate::policy::draft_prices::{DraftPrices, LONGEST_PLANNED_DRAFT};
use crate::policy::drafter_off::DrafterOff;
use crate::policy::drafter_policy::{DrafterPolicy, MIN_SPEEDUP_IN_BATCH, OfferDecision};
use crate::policy::exit_head_use::ExitHeadUse;
use crate::policy::plain_timing::PlainTiming;
use crate::policy::round_reason::RoundReason;
use crate::policy::stop_rule::StopRule;

/// Chooses the rounds of one sequence.
#[derive(Debug)]
pub(crate) struct SpeculationPolicy {
    drafters: Vec<DrafterPolicy>,
    draft_len: DraftLen,
    bonus: bool,
    max_loss: Option<f64>,
    always: bool,
    greedy: bool,
    plain_timing: PlainTiming,
    exit_head: ExitHeadUse,
}

fn uses_exit_head(policy: &DrafterPolicy) -> bool {
    policy.drafter.path().is_some_and(|path| path.uses_exit_head())
}

impl SpeculationPolicy {
    /// Asks `drafters` in their order. `greedy`: the most probable token is always taken.
    pub(crate) fn new(drafters: Vec<Box<dyn Drafter>>, params: &SpeculationParams, greedy: bool) -> Self {
        let drafters = drafters.into_iter().map(|drafter| DrafterPolicy::new(drafter, params.max_loss)).collect();
        SpeculationPolicy {
            drafters,
            draft_len: params.draft_len,
            bonus: params.bonus,
            max_loss: params.max_loss,
            always: params.always,
            greedy,
            plain_timing: PlainTiming::default(),
            exit_head: ExitHeadUse::default(),
        }
    }

    /// Asks `drafter` before the others, unless speculation is off.
    pub(crate) fn add_first_drafter(&mut self, drafter: Box<dyn Drafter>) {
        if self.has_drafters() {
            self.drafters.insert(0, DrafterPolicy::new(drafter, self.max_loss));
        }
    }

    /// Whether there is any drafter.
    pub(crate) fn has_drafters(&self) -> bool {
        !self.drafters.is_empty()
    }

    /// Whether the exit head is not expected to pay for a sequence of `len` tokens beside `beside`
    /// others.
    pub(crate) fn exit_head_is_hopeless(&self, len: usize, beside: usize, costs: &CostModel) -> bool {
        if self.always || costs.batch() < 2 {
            return !self.always && ExitHeadUse::is_hopeless_beside(beside);
        }
        self.drafters.iter().find(|policy| uses_exit_head(policy)).is_some_and(|policy| {
            let prices = DraftPrices::new(costs.at(len), policy.drafter.path());
            let chain = policy.expected_acceptance(0, costs).chain;
            prices.best_draft_len(&chain, self.bonus).1 < MIN_SPEEDUP_IN_BATCH
        })
    }

    /// Whether the exit head has not paid for so long that the sequence should give it up.
    pub(crate) fn exit_head_is_over(&self) -> bool {
        self.exit_head.is_over()
    }

    /// Removes the exit head. Between rounds.
    pub(crate) fn disable_exit_head(&mut self) {
        self.drafters.retain(|policy| !uses_exit_head(policy));
    }

    /// The drafter of a choice.
    pub(crate) fn drafter(&self, choice: &DraftChoice) -> &dyn Drafter {
        &*self.drafters[choice.drafter].drafter
    }

    /// The drafter of a choice, to draft with.
    pub(crate) fn drafter_mut(&mut self, choice: &DraftChoice) -> &mut dyn Drafter {
        &mut *self.drafters[choice.drafter].drafter
    }

    /// The drafters that are off: no kind of offer that they made so far is worth drafting.
    pub(crate) fn drafters_off(&self) -> Vec<DrafterOff> {
        self.drafters.iter().filter_map(DrafterPolicy::off).cloned().collect()
    }

    /// Chooses the next round after the committed `tokens`, of which `generated` are output.
    /// `forced` must come next, and the round may draft `limit` tokens. `None`: a plain round.
    pub(crate) fn choose(
        &mut self,
        tokens: &[TokenId],
        forced: &[TokenId],
        generated: usize,
        limit: usize,
        costs: &CostModel,
    ) -> (Option<DraftChoice>, RoundReason) {
        if self.drafters.is_empty() {
            return (None, RoundReason::Off);
        }
        if limit == 0 {
            return (None, RoundReason::LastToken);
        }
        let (draft_len, bonus) = (self.draft_len, self.bonus);
        let mut best: Option<(f64, DraftChoice)> = None;
        let mut probe: Option<(f64, DraftChoice)> = None;
        let mut paused = RoundReason::NoOffer;
        for (drafter, policy) in self.drafters.iter_mut().enumerate() {
            let Some(offer) = policy.drafter.offer(tokens, forced) else { continue };
            let prices = DraftPrices::new(costs.at(tokens.len()), policy.drafter.path());
            let choice = |k: usize, bonus, last_try| {
                let k = k.min(limit);
                DraftChoice { drafter, k, bonus, offer, prices, stop_rule: None, last_try }
            };
            if self.always {
                return (Some(choice(policy.requested_draft_len(draft_len), bonus, false)), RoundReason::Always);
            }
            let decision = policy.decide(&prices, offer, (draft_len, bonus), generated, costs);
            if uses_exit_head(policy) {
                self.exit_head.record(matches!(decision, OfferDecision::Draft { .. }), costs.batch());
            }
            match decision {
                OfferDecision::Draft { k, speedup, chain } => {
                    if best.as_ref().is_some_and(|(highest, _)| speedup <= *highest) {
                        continue;
                    }
                    let path = policy.drafter.path().filter(|_| draft_len == DraftLen::Adaptive);
                    let stop_rule = path.map(|path| {
                        let (trained, others) =
                            (policy.drafter.has_trained_confidence(), costs.confidence(path, self.greedy));
                        StopRule::new(speedup, chain, prices, bonus, trained, others)
                    });
                    let k = if stop_rule.is_some() { LONGEST_PLANNED_DRAFT } else { k };
                    best = Some((speedup, DraftChoice { stop_rule, ..choice(k, bonus, false) }));
                }
                OfferDecision::Probe { k, bonus, last_try, speedup } => {
                    probe.get_or_insert_with(|| (speedup, choice(k, bonus, last_try)));
                }
                OfferDecision::Pause(reason) => paused = reason,
            }
        }
        if self.plain_timing.is_next(best.is_some() && costs.plain_is_due(tokens.len()), generated) {
            return (None, RoundReason::TimesPlainStep);
        }
        match (best, probe) {
            (Some((speedup, choice)), _) => (Some(choice), RoundReason::Pays { speedup }),
            (None, Some((speedup, choice))) => (Some(choice), RoundReason::Probe { speedup }),
            (None, None) => (None, paused),
        }
    }

    /// The confidence below which the row for draft `i` (from 0) of the round proposes nothing.
    pub(crate) fn min_confidence(&self, choice: &DraftChoice, i: usize) -> f32 {
        let own = &self.drafters[choice.drafter].confidence;
        choice.stop_rule.as_ref().map_or(0.0, |rule| rule.min_confidence(own, i))
    }

    /// When a round ends that has `drafted` drafts, as data. The caller adds what is not the
    /// policy's.
    pub(crate) fn draft_stop_rule(&self, choice: &DraftChoice, drafted: usize) -> DraftStopRule {
        let own = &self.drafters[choice.drafter].confidence;
        let rule = choice.stop_rule.as_ref().map(|rule| rule.as_data(own, drafted..choice.k));
        rule.unwrap_or_else(|| DraftStopRule { reached: 1.0, ..DraftStopRule::default() })
    }

    /// Whether the round drafts on after its `drafted`-th draft, which has this confidence.
    pub(crate) fn continues_after(&self, choice: &mut DraftChoice, drafted: usize, confidence: f32) -> bool {
        let own = &self.drafters[choice.drafter].confidence;
        let worth = choice.stop_rule.as_mut().is_none_or(|rule| rule.continues_after(own, drafted, confidence));
        worth && drafted < choice.k
    }

    /// Learns how a verified draft of the model fared.
    pub(crate) fn record_draft(&mut self, choice: &DraftChoice, confidence: f32, accepted: bool) {
        self.drafters[choice.drafter].confidence.record_draft(confidence, accepted);
    }

    /// Learns from a round that drafted. `generated` counts the output with it.
    pub(crate) fn record_round(&mut self, choice: &DraftChoice, round: RoundResult, generated: usize) {
        let policy = &mut self.drafters[choice.drafter];
        let RoundResult { draft_steps, drafted, accepted, rejected, declined, committed } = round;
        let offer = &mut policy.offers[choice.offer];
        // A declined draft counts as rejected: the record says what rows yield, whatever the stop
        // rule does.
        offer.acceptance.record_round(accepted, rejected || (declined && accepted == drafted));
        policy.window.record_round(accepted, rejected);
        let bonus = choice.bonus && drafted > 0; // without drafts there is one row, from the kept state
        let cost = choice.prices.draft_step * draft_steps + choice.prices.verification(drafted, bonus);
        policy.budget.record_round(cost, committed);
        if choice.last_try && accepted == 0 {
            offer.pause(generated);
        }
    }
}
