//! Whether to draft, with which drafter, and how far: by measured goodput.
//!
//! With a_i the acceptance of the i-th draft of a round, given that those before it were accepted, c the cost of a draft step and b(m) that of a
//! pass of m rows, both over a plain step, a round of k drafts is expected to make decoding faster by
//!
//! ```text
//! (1 + a_1 + a_1 a_2 + ... + a_1 .. a_k) / (c k + b(k + 1))
//! ```
//!
//! (Leviathan et al. 2023, theorem 3.8, with b measured and acceptance by place). Of all drafters that have a proposal and all k the
//! one with the highest speed-up is taken, if that is above 1; else the round is plain. So a good match in the prompt is copied, and where there is
//! none the model drafts. A drafter that does not pay is tried again now and then by **probes**, which are chosen for their price: layer skip
//! drafts one token and verifies without the bonus row, so that the round is a plain step that stops by at the head halfway; prompt lookup drafts two.
//!
//! Within a round of the model's drafts the confidence of each row decides anew (see [`crate::confidence`]): a draft that is less likely to stand than its row
//! of the verification costs is left out and ends the draft, and the next one is made where it is likely enough to be worth both.
//!
//! What speculation may cost is bounded by a ledger for each drafter: what its rounds cost beyond plain decoding of the same tokens may not exceed a small
//! start and a small share of the tokens generated. Neither a probe nor a hopeful round runs when it does. Gains are
//! booked too, but only a few steps of them: old success is no licence.
//!
//! Costs drift with the context's length and with the load. Draft and verification steps are timed as they happen; a plain step is run now and then only
//! to be timed.

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::path::DraftPath;
use crate::params::{DraftLen, MAX_DRAFT, SpeculationParams};
use crate::policy::acceptance::{Acceptance, Chain};
use crate::policy::confidence::Confidence;
use crate::policy::cost::{CostModel, CostsAt};
use crate::policy::reason::Reason;
use crate::policy::window::Window;
use crate::stats::DrafterKind;

/// Predicted speed-up from which a drafter works.
const WORTH: f64 = 1.04;
/// The same beside other sequences, whose rounds end at other times: what one waits for another is in no prediction.
const WORTH_BESIDE: f64 = 1.15;
/// Judged drafts before a prediction counts.
const ENOUGH: f64 = 3.0;
/// Tokens between the first two probes of a drafter that is off; doubled by each that fails.
const FIRST_PAUSE: usize = 32;
const LONGEST_PAUSE: usize = 512;
/// Most plain steps of gain that the ledger remembers.
const BANK: f64 = 4.0;
/// Plain steps that a drafter with a good prediction may lose beyond what probes may: the first rounds after a success can be unlucky.
const CREDIT: f64 = 1.0;
/// Rounds in a row in which the exit head does not pay, times the sequences in a step, after which one of several goes on without it.
const PATIENCE: usize = 192;
/// Sequences beside which the head is not expected to pay before anything was measured there.
const MANY: usize = 4;
/// What the ledgers of layer skip and prompt lookup allow to be lost in the long run, together.
const USUAL_LOSS: f64 = 0.013;
/// Longest draft that the search for the best one considers.
const HORIZON: usize = 8;
/// Kinds of offer: 0 for the model, the length of the n-gram for prompt lookup.
const OFFERS: usize = 9;
/// Plain rounds in a row that are run only to be timed, and tokens before there may be others.
const TIMINGS: usize = 4;
const TIMING_PAUSE: usize = 64;
/// Weight, in judged drafts, of what training found out about a head.
const PRIOR_WEIGHT: f64 = 6.0;

/// What a round may cost, over a plain step.
#[derive(Debug, Clone, Copy)]
struct Prices {
    draft: f64,                       // c
    with_bonus: [f64; MAX_DRAFT + 1], // (drafts): the verification of all drafts and one row more
    bare: [f64; MAX_DRAFT + 1],       // (drafts): without; index 0 is 1 row, from a kept state
}

/// One kind of offer of a drafter: how such drafts fare, and whether it is worth taking.
#[derive(Debug, Clone, Default)]
struct Line {
    record: Acceptance,
    working: bool,
    offered: bool,
    next_probe: usize, // tokens generated before the next probe
    pause: usize,
    off: Option<String>,
}

/// A drafter, its kinds of offer, and its ledger.
#[derive(Debug)]
struct Arm {
    drafter: Box<dyn Drafter>,
    window: Window,
    lines: [Line; OFFERS],
    confidence: Confidence,
    balance: f64, // plain steps lost so far; negative is gained
    start: f64,   // plain steps that may be lost at once
    share: f64,   // and per token generated
    credit: f64,  // and beyond these with a good prediction
}

/// What the next round does.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) arm: usize,
    pub(crate) k: usize,
    pub(crate) bonus: bool,
    offer: usize,
    prices: Prices,
    gate: Option<Gate>,
    /// A refusal means that such offers rest: the round is a probe, and enough drafts were judged before it.
    last_try: bool,
}

/// What decides, draft by draft, how far a round goes.
#[derive(Debug, Clone)]
struct Gate {
    speed: f64, // tokens that a plain step's time is worth
    chain: Chain,
    others: Confidence, // of other sequences' drafts
    reached: f64,       // expected acceptance of all drafts so far
}

impl Gate {
    /// The acceptance expected of draft `i` of a confidence that was never judged: a head that was trained is taken at its word, layers that
    /// were not are tried.
    fn floor(&self, arm: &Arm, i: usize) -> f64 {
        let trained = arm.drafter.kind() == DrafterKind::ExitHead;
        if trained { 0.0 } else { self.chain.get(i).copied().unwrap_or(0.0) }
    }
}

/// Asks for a row's confidence where every draft is taken.
const ANY: f32 = f32::MIN_POSITIVE;

/// What became of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// Draft rows that were run, each as often as sequences waited for it.
    pub(crate) draft_rows: f64,
    /// Tokens that were drafted.
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    pub(crate) rejected: bool,
    /// Whether the last row's draft was left out.
    pub(crate) declined: bool,
    /// Tokens that the round committed.
    pub(crate) gained: usize,
}

/// Chooses for one sequence.
#[derive(Debug)]
pub(crate) struct Controller {
    arms: Vec<Arm>,
    draft_len: DraftLen,
    bonus: bool,
    max_loss: Option<f64>,
    always: bool,
    greedy: bool,
    timed: usize,       // plain rounds in a row that were only to be timed
    next_timing: usize, // tokens generated before there may be others
    idle_head: usize,   // rounds in a row in which the exit head did not pay, times the batch's size
}

impl Controller {
    /// Asks `drafters` in their order. `greedy`: the most probable token is always taken.
    pub(crate) fn new(drafters: Vec<Box<dyn Drafter>>, params: &SpeculationParams, greedy: bool) -> Self {
        let arms = drafters.into_iter().map(|drafter| Arm::new(drafter, params.max_loss)).collect();
        Controller {
            arms,
            draft_len: params.draft_len,
            bonus: params.bonus,
            max_loss: params.max_loss,
            always: params.always,
            greedy,
            timed: 0,
            next_timing: 0,
            idle_head: 0,
        }
    }

    /// Asks `drafter` before the others, if there are others.
    pub(crate) fn draft_first(&mut self, drafter: Box<dyn Drafter>) {
        if self.drafts() {
            self.arms.insert(0, Arm::new(drafter, self.max_loss));
        }
    }

    /// Whether the exit head cannot be expected to pay beside the sequences that there are now: every row of the model would keep up its K and V for nothing.
    /// `beside`: how many others there are.
    pub(crate) fn head_is_idle(&self, pos: usize, beside: usize, costs: &CostModel) -> bool {
        if self.always || costs.batch() < 2 {
            return !self.always && beside >= MANY;
        }
        let head = self.arms.iter().find(|arm| arm.drafter.kind() == DrafterKind::ExitHead);
        head.is_some_and(|arm| {
            let prices = Prices::new(costs.at(pos), arm.drafter.path());
            best_len(&prices, &arm.estimate(0, costs).chain, self.bonus).1 < WORTH_BESIDE
        })
    }

    /// Whether it has not paid for so long that it is better done without.
    pub(crate) fn head_was_idle(&self) -> bool {
        self.idle_head >= PATIENCE
    }

    /// Goes on without the exit head. Between rounds.
    pub(crate) fn give_up_head(&mut self) {
        self.arms.retain(|arm| arm.drafter.kind() != DrafterKind::ExitHead);
    }

    /// Whether there is any drafter.
    pub(crate) fn drafts(&self) -> bool {
        !self.arms.is_empty()
    }

    /// The confidence below which the row that may propose draft `i` (from 0) of the round is to propose nothing.
    pub(crate) fn least_confidence(&self, choice: &Choice, i: usize) -> f32 {
        let Some(gate) = &choice.gate else { return 0.0 };
        let wanted = gate.speed * choice.prices.row(i, choice.bonus) / gate.reached;
        let arm = &self.arms[choice.arm];
        arm.confidence.from(&gate.others, gate.floor(arm, i), wanted).max(ANY)
    }

    /// Whether another draft is worth its row and its verification, after the one of this confidence, the `drafted`-th of the round.
    pub(crate) fn goes_on(&self, choice: &mut Choice, drafted: usize, confidence: f32) -> bool {
        let more = drafted < choice.k;
        let Some(gate) = &mut choice.gate else { return more };
        let arm = &self.arms[choice.arm];
        gate.reached *= arm.confidence.acceptance(&gate.others, gate.floor(arm, drafted - 1), confidence);
        let next = gate.reached * gate.chain.get(drafted).copied().unwrap_or(0.0);
        more && next >= gate.speed * (choice.prices.draft + choice.prices.row(drafted, choice.bonus))
    }

    /// Whether another draft, after `drafted` of them, is worth that `held_up` sequences wait for it: towards the end of a round fewer and fewer draft.
    pub(crate) fn holds_up(&self, choice: &Choice, drafted: usize, held_up: f64) -> bool {
        let Some(gate) = &choice.gate else { return true };
        let next = gate.reached * gate.chain.get(drafted).copied().unwrap_or(0.0);
        next >= gate.speed * (choice.prices.draft * held_up + choice.prices.row(drafted, choice.bonus))
    }

    /// Learns how a judged draft of the model fared.
    pub(crate) fn learn_confidence(&mut self, choice: &Choice, confidence: f32, accepted: bool) {
        self.arms[choice.arm].confidence.add(confidence, accepted);
    }

    pub(crate) fn drafter(&self, choice: &Choice) -> &dyn Drafter {
        &*self.arms[choice.arm].drafter
    }

    pub(crate) fn drafter_mut(&mut self, choice: &Choice) -> &mut dyn Drafter {
        &mut *self.arms[choice.arm].drafter
    }

    /// Why drafters are off at present: those none of whose offers so far is worth taking.
    pub(crate) fn off_reason(&self) -> Option<String> {
        let reasons: Vec<&str> = self.arms.iter().filter_map(Arm::off_reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// What to do after the committed `tokens`, of which `generated` are output, after which `forced` must come and which may grow by `limit` drafts; and why. `None`: no draft.
    pub(crate) fn choose(
        &mut self,
        tokens: &[TokenId],
        forced: &[TokenId],
        generated: usize,
        limit: usize,
        costs: &CostModel,
    ) -> (Option<Choice>, Reason) {
        if self.arms.is_empty() {
            return (None, Reason::Off);
        }
        if limit == 0 {
            return (None, Reason::Last);
        }
        let (draft_len, bonus, greedy) = (self.draft_len, self.bonus, self.greedy);
        let mut works: Option<(f64, Choice)> = None;
        let mut probe: Option<(f64, Choice)> = None;
        let mut rests = Reason::NoOffer;
        for (index, arm) in self.arms.iter_mut().enumerate() {
            let Some(offer) = arm.drafter.offer(tokens, forced) else { continue };
            let prices = Prices::new(costs.at(tokens.len()), arm.drafter.path());
            let choice = |k: usize, bonus, last_try| Choice {
                arm: index,
                k: k.min(limit),
                bonus,
                offer,
                prices,
                gate: None,
                last_try,
            };
            if self.always {
                return (Some(choice(arm.wanted(draft_len), bonus, false)), Reason::Always);
            }
            let verdict = arm.weigh(&prices, offer, Wish { draft_len, bonus }, generated, costs);
            if arm.drafter.kind() == DrafterKind::ExitHead {
                let idle = !matches!(verdict, Verdict::Work { .. }) && costs.batch() > 1;
                self.idle_head = if idle { self.idle_head + costs.batch() } else { 0 };
            }
            match verdict {
                Verdict::Work { k, gain, chain } => {
                    if works.as_ref().is_none_or(|(best, _)| gain > *best) {
                        let gated = arm.drafter.path().filter(|_| draft_len == DraftLen::Adaptive);
                        let gate = gated.map(|path| Gate {
                            speed: gain.max(1.0),
                            chain,
                            others: costs.confidence(path, greedy),
                            reached: 1.0,
                        });
                        let k = if gate.is_some() { HORIZON } else { k };
                        works = Some((gain, Choice { gate, ..choice(k, bonus, false) }));
                    }
                }
                Verdict::Probe { k, bonus, last_try, gain } => {
                    probe.get_or_insert((gain, choice(k, bonus, last_try)));
                }
                Verdict::Rest(reason) => rests = reason,
            }
        }
        if works.is_some() && costs.plain_is_due(tokens.len()) && generated >= self.next_timing {
            // In a batch the others may go on with rounds of their own, and the step tells nothing.
            self.timed += 1;
            if self.timed == TIMINGS {
                (self.timed, self.next_timing) = (0, generated + TIMING_PAUSE);
            }
            return (None, Reason::Timing);
        }
        self.timed = 0;
        match (works, probe) {
            (Some((gain, choice)), _) => (Some(choice), Reason::Pays { gain }),
            (None, Some((gain, choice))) => (Some(choice), Reason::Probe { gain }),
            (None, None) => (None, rests),
        }
    }

    /// Learns from a round that was chosen. `generated` counts the output with it.
    pub(crate) fn learn(&mut self, choice: &Choice, outcome: Outcome, generated: usize) {
        let arm = &mut self.arms[choice.arm];
        let Outcome { draft_rows, drafted, accepted, rejected, declined, gained } = outcome;
        let line = &mut arm.lines[choice.offer];
        // A draft that was left out counts as refused: the record tells what rows come to, whatever the gate does.
        line.record.add(accepted, rejected || (declined && accepted == drafted));
        arm.window.add(accepted, rejected);
        let bonus = choice.bonus && drafted > 0; // without drafts there is one row, from the kept state
        let cost = choice.prices.draft * draft_rows + choice.prices.verify(drafted, bonus);
        arm.balance = (arm.balance + cost - gained as f64).max(-BANK);
        if choice.last_try && accepted == 0 {
            line.rest(generated);
        }
    }
}

enum Verdict {
    Work { k: usize, gain: f64, chain: Chain },
    Probe { k: usize, bonus: bool, last_try: bool, gain: f64 },
    Rest(Reason),
}

/// What the request asks for.
#[derive(Debug, Clone, Copy)]
struct Wish {
    draft_len: DraftLen,
    bonus: bool,
}

/// Expected acceptance of an offer, and the judged drafts behind it.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    alpha: f64,
    chain: Chain,
    judged: f64,
    enough: bool,
}

impl Arm {
    fn new(drafter: Box<dyn Drafter>, max_loss: Option<f64>) -> Self {
        let (start, share) = match drafter.kind() {
            DrafterKind::LayerSkip | DrafterKind::ExitHead => (0.8, 0.008),
            DrafterKind::PromptLookup | DrafterKind::Grammar | DrafterKind::Prediction => (0.3, 0.005),
        };
        let scale = max_loss.map_or(1.0, |loss| loss / USUAL_LOSS);
        let line = Line { pause: FIRST_PAUSE, ..Line::default() };
        Arm {
            drafter,
            window: Window::new(),
            lines: std::array::from_fn(|_| line.clone()),
            confidence: Confidence::default(),
            balance: 0.0,
            start: start * scale,
            share: share * scale,
            credit: CREDIT * scale.min(1.0),
        }
    }

    /// The draft length as asked for, costs left aside.
    fn wanted(&self, draft_len: DraftLen) -> usize {
        match draft_len {
            DraftLen::Fixed(k) => k,
            DraftLen::Adaptive | DraftLen::Window => self.window.draft_len(),
        }
    }

    fn off_reason(&self) -> Option<&str> {
        let mut offered = self.lines.iter().filter(|l| l.offered);
        let first = offered.next()?.off.as_deref()?;
        offered.all(|l| l.off.is_some()).then_some(first)
    }

    fn weigh(&mut self, prices: &Prices, offer: usize, wish: Wish, generated: usize, costs: &CostModel) -> Verdict {
        let layers = self.drafter.path().is_some();
        let Wish { draft_len, bonus } = wish;
        let estimate = self.estimate(offer, costs);
        let (best, _) = best_len(prices, &estimate.chain, bonus);
        let k = match draft_len {
            DraftLen::Fixed(k) => k,
            DraftLen::Adaptive => best,
            DraftLen::Window => self.window.draft_len().min(best.max(2)),
        };
        let gain = speedup(prices, &estimate.chain, k, bonus);
        let allowance = self.start + self.share * generated as f64;
        // The long-context rule of the sliding window: where one draft is all that pays, drafting with the model is not worth its trouble.
        let too_short = layers && draft_len == DraftLen::Window && best < 2;
        let worth = if layers && costs.batch() > 1 { WORTH_BESIDE } else { WORTH };
        let against = if gain < worth {
            Some(Reason::Slow { gain })
        } else if too_short {
            Some(Reason::Short { gain })
        } else if self.balance > allowance + self.credit {
            Some(Reason::Debt { lost: self.balance })
        } else {
            None
        };
        let line = &mut self.lines[offer];
        let first = !std::mem::replace(&mut line.offered, true);
        if against.is_none() && estimate.enough {
            if !std::mem::replace(&mut line.working, true) {
                line.pause = (line.pause / 2).max(FIRST_PAUSE);
                line.off = None;
            }
            return Verdict::Work { k, gain, chain: estimate.chain };
        }
        if std::mem::take(&mut line.working) {
            line.rest(generated);
        } else if first && estimate.enough {
            line.next_probe = generated + line.pause; // other sequences have tried already
        }
        if let Some(against) = against.filter(|_| estimate.judged > 0.0 && line.off.is_none()) {
            // The estimate leans on a prior: a few drafts are no measurement, and are not told as one.
            let judged = line.record.all.judged.round();
            let drafts = if judged == 1.0 { "draft" } else { "drafts" };
            let against = match against {
                Reason::Short { gain } => format!("predicted speed-up {gain:.2} and best draft length 1"),
                Reason::Debt { lost } => format!("it has cost {lost:.1} plain steps so far"),
                _ => format!("predicted speed-up {gain:.2}"),
            };
            let cost = self
                .drafter
                .path()
                .map_or(String::new(), |p| format!("a draft of {p} costs {:.2} plain steps, ", prices.draft));
            line.off = Some(format!(
                "{} off: {against}, expected acceptance {:.2} after {judged:.0} judged {drafts} ({cost}the verification of {k} {:.2})",
                self.drafter.kind(),
                estimate.alpha,
                prices.verify(k, bonus),
            ));
        }
        let rests = against.unwrap_or(Reason::Slow { gain });
        let (k, bonus) = if layers { (1, false) } else { (2, bonus) };
        let price = (prices.draft + prices.verify(k, bonus) - 1.0).max(0.0);
        let hopeless = best_len(prices, &[1.0; MAX_DRAFT], wish.bonus).1 < worth;
        if hopeless || generated < line.next_probe || self.balance + price > allowance {
            return Verdict::Rest(rests);
        }
        if std::mem::take(&mut line.next_probe) > 0 {
            line.record.age(2.0); // what was so long ago yields to what the probes find; they go on until one fails
        }
        Verdict::Probe { k, bonus, last_try: estimate.judged + 1.0 >= ENOUGH, gain }
    }

    fn estimate(&self, offer: usize, costs: &CostModel) -> Estimate {
        let record = &self.lines[offer].record;
        let own = record.all;
        let (alpha, judged, enough) = match self.drafter.path() {
            Some(path) => {
                // What others came to, or what is known from training, gives way to the sequence's own.
                let (accepted, judged) = match (costs.prior(path), self.drafter.prior()) {
                    ((_, 0.0), Some(alpha)) => (alpha * PRIOR_WEIGHT, PRIOR_WEIGHT),
                    (others, _) => others,
                };
                let scale = 6.0 / (6.0 + own.judged);
                let (a, n) = (own.accepted + accepted * scale, own.judged + judged * scale);
                // A hopeful prior: what is tried too little costs a probe, what is given up too early costs the gain.
                ((a + 2.0) / (n + 3.0), n, n >= ENOUGH)
            }
            None => {
                // The longer the match, the likelier it goes on.
                let by_length = [0.25, 0.4, 0.55, 0.65][offer.clamp(1, 4) - 1];
                let prior = self.drafter.prior().unwrap_or(by_length);
                ((own.accepted + 2.0 * prior) / (own.judged + 2.0), own.judged, true)
            }
        };
        Estimate { alpha, chain: record.chain(alpha), judged, enough }
    }
}

impl Line {
    /// Leaves such offers alone for a while, twice as long each time.
    fn rest(&mut self, generated: usize) {
        self.next_probe = generated + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.off = None; // to be said anew, with the figures of now
        self.record.age(6.0);
    }
}

impl Prices {
    fn new(costs: CostsAt<'_>, path: Option<&DraftPath>) -> Self {
        let draft = path.map_or(0.0, |p| costs.c(p));
        let mut prices = Prices { draft, with_bonus: [1.0; MAX_DRAFT + 1], bare: [1.0; MAX_DRAFT + 1] };
        for k in 0..=MAX_DRAFT {
            match path {
                Some(_) => {
                    prices.with_bonus[k] = costs.verify(path, k, 1);
                    prices.bare[k] = costs.verify(path, k.max(1), 0);
                }
                None => {
                    prices.with_bonus[k] = costs.b(k + 1);
                    prices.bare[k] = costs.b(k.max(1));
                }
            }
        }
        prices
    }

    fn verify(&self, k: usize, bonus: bool) -> f64 {
        if bonus { self.with_bonus[k] } else { self.bare[k] }
    }

    /// What draft `i` (from 0) adds to the verification.
    fn row(&self, i: usize, bonus: bool) -> f64 {
        let before = if i == 0 { self.bare[0] } else { self.verify(i, bonus) };
        (self.verify((i + 1).min(MAX_DRAFT), bonus) - before).max(0.0)
    }
}

/// The expected speed-up of rounds of `k` drafts.
fn speedup(prices: &Prices, chain: &Chain, k: usize, bonus: bool) -> f64 {
    // Token i + 1 of a round is there if i drafts were accepted; without the bonus row there is none after the last draft.
    let (mut tokens, mut reached) = (0.0, 1.0);
    for i in 0..k + usize::from(bonus) {
        tokens += reached;
        reached *= chain.get(i).copied().unwrap_or(0.0);
    }
    tokens / (prices.draft * k as f64 + prices.verify(k, bonus))
}

/// The draft length with the highest expected speed-up, and that.
fn best_len(prices: &Prices, chain: &Chain, bonus: bool) -> (usize, f64) {
    let mut best = (1, f64::NEG_INFINITY);
    for k in 1..=HORIZON {
        let gain = speedup(prices, chain, k, bonus);
        if gain > best.1 {
            best = (k, gain);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use selfspec_model::{LayerPlan, Readout};

    use super::*;

    fn prices(c: f64, b: f64) -> Prices {
        Prices { draft: c, with_bonus: [b; MAX_DRAFT + 1], bare: [b; MAX_DRAFT + 1] }
    }

    /// The published table for c = 0.3 and b = 1, computed from the formula.
    #[test]
    fn the_formula_gives_the_textbook_table() {
        let table = [
            (1, [1.23, 1.31, 1.38, 1.46]),
            (2, [1.23, 1.37, 1.53, 1.69]),
            (3, [1.15, 1.33, 1.55, 1.81]),
            (4, [1.05, 1.26, 1.53, 1.86]),
            (6, [0.87, 1.09, 1.41, 1.86]),
            (8, [0.73, 0.94, 1.27, 1.80]),
        ];
        for (k, row) in table {
            for (alpha, expected) in [0.6, 0.7, 0.8, 0.9].into_iter().zip(row) {
                let got = speedup(&prices(0.3, 1.0), &[alpha; MAX_DRAFT], k, true);
                assert!((got - expected).abs() < 0.006, "k {k}, alpha {alpha}: {got}, expected {expected}");
            }
        }
    }

    /// A layer-skip arm with a known acceptance, on a cost model with a known c.
    fn weigh(c: f64, accepted: f64, judged: f64) -> (Verdict, Option<String>) {
        let plan = LayerPlan::exit(10, 5).expect("valid");
        let mut costs = CostModel::new();
        let path = DraftPath { plan: plan.clone(), readout: Readout::Head };
        let row = |plan: &LayerPlan| selfspec_model::Row {
            seq: selfspec_model::SeqId(0),
            pos: 0,
            token: 0,
            enter: selfspec_model::Enter::Token,
            plan: plan.clone(),
            keep: false,
            readout: Readout::Head,
        };
        costs.record(&[row(&LayerPlan::full(10))], 1.0);
        costs.record(&[row(&plan)], c);
        let mut arm = Arm::new(Box::new(crate::draft::layers::ModelDrafter::new(path.clone(), None, 0.0)), None);
        arm.lines[0].record.all = crate::policy::acceptance::Counts { accepted, judged };
        let prices = Prices::new(costs.at(0), Some(&path));
        let verdict = arm.weigh(&prices, 0, Wish { draft_len: DraftLen::Window, bonus: true }, 100, &costs);
        (verdict, arm.off_reason().map(str::to_owned))
    }

    /// At long contexts attention makes c grow; where only one draft pays, layer skip is off, and it says why.
    #[test]
    fn layer_skip_is_off_where_the_best_draft_length_is_below_two() {
        assert!(matches!(weigh(0.3, 24.0, 32.0), (Verdict::Work { k: 2.., .. }, None)));
        let (verdict, reason) = weigh(0.42, 24.0, 37.0);
        assert!(!matches!(verdict, Verdict::Work { .. }));
        let reason = reason.expect("off");
        assert!(reason.contains("and best draft length 1, expected acceptance 0."), "{reason}");
        let (_, reason) = weigh(0.5, 2.0, 20.0);
        let reason = reason.expect("off");
        assert!(
            reason.contains("a draft of layers 0..5 costs 0.50") && reason.contains("off: predicted speed-up 0."),
            "{reason}"
        );
    }

    #[test]
    fn dear_drafts_are_best_kept_short() {
        assert_eq!(best_len(&prices(0.3, 1.0), &[0.8; MAX_DRAFT], true).0, 3);
        assert_eq!(best_len(&prices(0.7, 1.1), &[0.6; MAX_DRAFT], true).0, 1);
        assert_eq!(best_len(&prices(0.0, 1.0), &[0.6; MAX_DRAFT], true).0, HORIZON);
    }
}
