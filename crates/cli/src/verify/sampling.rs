//! Rejection sampling as a distribution, on this model's own logits.
//!
//! Unseeded sampling with speculation draws other tokens than without, from the same distribution. The rows of logits that a round can
//! meet after a few real prompts are computed once, by the full model and by early exits; then the accept path runs tens of thousands of
//! times over them, and a chi-square test compares what came out with exact enumeration. Acceptance rules that are wrong on purpose must
//! each fail that test after every prompt, or it has tested nothing. A wrong rule shows only where several tokens are likely and the draft
//! proposes them, which an early exit of an untrained model may never do: for these trials the rows of the full model draft, at a
//! temperature that spreads them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::Context;
use selfspec_engine::exactness::{Drafting, Exactness, Trial, distribution};
use selfspec_engine::{
    Backend, BackendError, Engine, EngineOptions, Enter, KvType, LayerPlan, Loaded, Readout, Row, SamplingParams,
    SeqId, StepOutput, TokenId,
};

use super::setting::Drafter;
use crate::output::Ui;
use crate::progress::Steps;
use selfspec_lab::prompts::PromptCase;
use selfspec_lab::prompts::PromptStyle;

/// Prompts whose continuations are sampled.
const PROMPTS: usize = 3;
/// Tokens that sampling keeps of each row, so that the rows of every continuation can be computed.
const TOP_K: usize = 3;
/// Tokens drafted a round.
const K: usize = 3;
/// Tokens that are compared jointly.
const LENGTH: usize = 2;
/// Outcomes drawn in a trial.
const DRAWS: u64 = 20_000;
/// Of every row, at least this many of the most probable tokens keep their logits; tokens that no row has among them are left out.
const KEPT: usize = 32;

/// What the trials came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    trials: usize,
    draws: u64,
    drafted: u64,
    accepted: u64,
    rejected: u64,
    least_p: Option<f64>,
    failures: Vec<String>,
    caught: usize,
    missed: Vec<String>,
}

impl Outcome {
    pub(crate) fn ok(&self) -> bool {
        let seen = self.drafted > 0 && self.accepted > 0 && self.rejected > 0;
        self.failures.is_empty() && self.missed.is_empty() && self.caught > 0 && seen
    }

    /// Whether a trial showed the rule to be wrong, and not just too little to see it.
    pub(crate) fn refuted(&self) -> bool {
        !self.failures.is_empty()
    }

    /// One line for people.
    pub(crate) fn words(&self) -> String {
        let mut text = format!(
            "{} trials of {DRAWS} outcomes, {} drafted, {} accepted, {} rejected; least p-value {:.1e}; ",
            self.trials,
            self.drafted,
            self.accepted,
            self.rejected,
            self.least_p.unwrap_or(1.0),
        );
        let wrong = self.caught + self.missed.len();
        text += &match (self.caught, self.missed.len()) {
            (_, 0) => format!("all {wrong} deliberately wrong rules caught"),
            (caught, _) => format!("only {caught} of {wrong} deliberately wrong rules caught"),
        };
        for failure in &self.failures {
            text += &format!("; {failure}");
        }
        text
    }

    /// What the trials could not judge, a sentence each.
    pub(crate) fn untested(&self) -> Vec<String> {
        let missed = |rule| format!("the test of rejection sampling does not notice a wrong rule ({rule})");
        let mut untested: Vec<String> = self.missed.iter().map(missed).collect();
        if untested.is_empty() && !self.ok() && !self.refuted() {
            untested.push("the test of rejection sampling had too little to judge".to_owned());
        }
        untested
    }

    fn count(&mut self, what: &str, result: &Exactness) {
        self.trials += 1;
        self.draws += DRAWS;
        self.drafted += result.drafted;
        self.accepted += result.accepted;
        self.rejected += result.rejected;
        self.least_p = Some(self.least_p.unwrap_or(1.0).min(result.test.p_value));
        if !result.test.passes() {
            self.failures.push(format!(
                "{what}: chi-square {:.1} with {} degrees of freedom, p-value {:.1e}, {} impossible outcomes",
                result.test.statistic, result.test.freedom, result.test.p_value, result.test.impossible
            ));
        }
    }
}

/// Runs the trials.
pub(crate) fn test(
    loaded: &Arc<Loaded>,
    prompts: &[PromptCase],
    style: PromptStyle,
    threads: usize,
    kv_type: KvType,
    ui: &Ui,
) -> anyhow::Result<Outcome> {
    let options = EngineOptions { threads: Some(threads), kv_type, max_batch: 1, ..EngineOptions::default() };
    let engine = Engine::open_with(loaded, &options)?;
    let n_layers = engine.n_layers();
    let exits: Vec<usize> = Drafter::all(n_layers, false, None)
        .iter()
        .filter_map(|d| if let Drafter::Exit(exit) = d { Some(*exit) } else { None })
        .collect();
    let mut outcome = Outcome::default();
    if exits.is_empty() {
        outcome.failures.push(format!("a model of {n_layers} layers has no early exit to draft with"));
        return Ok(outcome);
    }
    let stride = prompts.len().div_ceil(PROMPTS).max(1);
    let chosen: Vec<&PromptCase> = prompts.iter().step_by(stride).collect();
    let steps = Steps::new(ui, "testing distributions", chosen.len() as u64);
    for (i, case) in chosen.into_iter().enumerate() {
        let tokens = engine.encode(&case.prompt(style))?;
        // Each prompt has another exit, so that good and bad drafts are both met.
        let exit = exits[(exits.len() - 1 + i) % exits.len()];
        let plan = LayerPlan::exit(n_layers, exit)?;
        let tree = engine.exclusive(move |backend| Tree::collect(backend, &tokens, &plan))??.compact();
        let place = format!("line {}, exit {exit}", case.line);
        run_trials(&tree, &place, &mut outcome).with_context(|| place.clone())?;
        steps.step();
    }
    Ok(outcome)
}

fn run_trials(tree: &Tree, place: &str, outcome: &mut Outcome) -> anyhow::Result<()> {
    let narrow = SamplingParams { temperature: 1.0, top_k: TOP_K, ..SamplingParams::default() };
    let cut = SamplingParams { temperature: 0.8, top_p: 0.95, ..narrow.clone() };
    let wide = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let target = |before: &[TokenId]| tree.target.get(before).map_or(&[][..], Vec::as_slice);
    let draft = |before: &[TokenId]| tree.draft.get(before).map_or(&[][..], Vec::as_slice);
    let trial = |sampling| Trial {
        target: &target,
        draft: &draft,
        draft_vocab: None,
        sampling,
        k: K,
        bonus: true,
        length: LENGTH,
        draws: DRAWS,
        entropy: 1,
        drafting: Drafting::Sampled,
    };
    outcome.count(&format!("{place}, top-k {TOP_K}"), &trial(&narrow).run()?);
    outcome.count(&format!("{place}, top-p 0.95"), &trial(&cut).run()?);
    // Without truncation any token may follow, so only the first one is compared, and no row after it is needed.
    let first = Trial { k: 1, length: 1, bonus: false, ..trial(&wide) };
    outcome.count(&format!("{place}, temperature 0.8"), &first.run()?);
    outcome.count(&format!("{place}, point mass"), &Trial { drafting: Drafting::Argmax, ..trial(&narrow) }.run()?);
    let (vocab, some) = tree.half_the_draft();
    let draft_of_half = |before: &[TokenId]| some.get(before).map_or(&[][..], Vec::as_slice);
    let halved = Trial { draft: &draft_of_half, draft_vocab: Some(&vocab), ..trial(&narrow) };
    outcome.count(&format!("{place}, half the vocabulary"), &halved.run()?);
    let spread = SamplingParams { temperature: spreading(&tree.target[&[][..]]), ..narrow.clone() };
    for (rule, wrong) in [
        ("the most probable token judged as if sampled", Drafting::ArgmaxJudgedAsSampled),
        ("drafts judged at another temperature", Drafting::JudgedAtTemperature(3.0 * spread.temperature)),
    ] {
        if (Trial { draft: &target, drafting: wrong, ..trial(&spread) }).run()?.test.passes() {
            outcome.missed.push(format!("{place}: {rule}"));
        } else {
            outcome.caught += 1;
        }
    }
    Ok(())
}

/// The temperature at which the most probable token of a row has a probability of about 0.6 among the first [`TOP_K`]: then what a wrong
/// rule does to the distribution is far larger than the noise of [`DRAWS`] outcomes.
fn spreading(row: &[f32]) -> f32 {
    let most = |temperature| {
        let sampling = SamplingParams { temperature, top_k: TOP_K, ..SamplingParams::default() };
        distribution(&sampling, row, &[]).into_iter().fold(0.0, f64::max)
    };
    let (mut low, mut high) = (0.01_f32, 100.0_f32);
    for _ in 0..32 {
        let middle = (low * high).sqrt();
        if most(middle) > 0.6 { low = middle } else { high = middle }
    }
    high
}

/// Rows of logits by the tokens after the prompt that come before them.
type Rows = HashMap<Vec<TokenId>, Vec<f32>>;

/// Every row that a trial can meet.
#[derive(Debug, Default)]
struct Tree {
    target: Rows,
    draft: Rows,
}

impl Tree {
    /// Computes the rows: the target's after everything that it can itself draw, the draft's after that and its own drafts.
    fn collect(backend: &mut dyn Backend, prompt: &[TokenId], plan: &LayerPlan) -> Result<Tree, BackendError> {
        let mut tree = Tree::default();
        let mut source = Source::new(backend, prompt)?;
        let full = LayerPlan::full(plan.n_layers());
        let result = (|| {
            let mut level = vec![Vec::new()];
            for depth in 0..LENGTH + K {
                let mut next = Vec::new();
                for before in level {
                    let row = source.row(&before, &full)?;
                    next.extend(likely(&row).map(|token| extended(&before, token)));
                    if depth < LENGTH {
                        tree.add_drafts(&mut source, &before, plan)?;
                    }
                    tree.target.insert(before, row);
                }
                level = next;
            }
            Ok(())
        })();
        source.free();
        result.map(|()| tree)
    }

    /// The draft's rows of a round that begins after `before`.
    fn add_drafts(
        &mut self,
        source: &mut Source<'_>,
        before: &[TokenId],
        plan: &LayerPlan,
    ) -> Result<(), BackendError> {
        let mut level = vec![before.to_vec()];
        for _ in 0..K {
            let mut next = Vec::new();
            for before in level {
                let row = match self.draft.get(&before) {
                    Some(row) => row.clone(),
                    None => source.row(&before, plan)?,
                };
                next.extend(likely(&row).map(|token| extended(&before, token)));
                self.draft.insert(before, row);
            }
            level = next;
        }
        Ok(())
    }

    /// Every other token, and the draft's rows over them: a draft vocabulary.
    fn half_the_draft(&self) -> (Vec<TokenId>, Rows) {
        let half = |row: &Vec<f32>| row.iter().step_by(2).copied().collect();
        let rows = self.draft.iter().map(|(path, row)| (path.clone(), half(row))).collect();
        let most = self.draft.values().map(Vec::len).max().unwrap_or(0) as TokenId;
        ((0..most).step_by(2).collect(), rows)
    }

    /// The same tree over the tokens that matter in any of its rows: thousands of draws over a whole vocabulary would take minutes.
    fn compact(self) -> Tree {
        let mut kept = BTreeSet::new();
        for row in self.target.values().chain(self.draft.values()) {
            let mut order: Vec<TokenId> = (0..row.len() as TokenId).collect();
            let by_logit = |a: &TokenId, b: &TokenId| row[*b as usize].total_cmp(&row[*a as usize]);
            let most = KEPT.min(order.len());
            if most < order.len() {
                order.select_nth_unstable_by(most, by_logit);
            }
            kept.extend(&order[..most]);
        }
        let number: HashMap<TokenId, TokenId> = kept.iter().copied().zip(0..).collect();
        let shrink = |rows: Rows| -> Rows {
            let row = |row: Vec<f32>| kept.iter().map(|t| row[*t as usize]).collect();
            // A path's tokens are among the most probable of the rows before them, so every one has a number.
            let path = |path: Vec<TokenId>| path.iter().filter_map(|t| number.get(t).copied()).collect();
            rows.into_iter().map(|(p, r)| (path(p), row(r))).collect()
        };
        Tree { target: shrink(self.target), draft: shrink(self.draft) }
    }
}

/// The tokens that sampling may draw from a row.
fn likely(row: &[f32]) -> impl Iterator<Item = TokenId> {
    let sampling = SamplingParams { temperature: 1.0, top_k: TOP_K, ..SamplingParams::default() };
    let tokens = distribution(&sampling, row, &[]).into_iter().zip(0..).filter(|(p, _)| *p > 0.0);
    tokens.map(|(_, token)| token).collect::<Vec<_>>().into_iter()
}

fn extended(before: &[TokenId], token: TokenId) -> Vec<TokenId> {
    before.iter().copied().chain([token]).collect()
}

/// A prompt in the cache, all but its last token, from which rows are computed.
struct Source<'b> {
    backend: &'b mut dyn Backend,
    seq: SeqId,
    last: TokenId,
    committed: usize,
    out: StepOutput,
}

impl<'b> Source<'b> {
    fn new(backend: &'b mut dyn Backend, prompt: &[TokenId]) -> Result<Self, BackendError> {
        let (last, before) = prompt.split_last().expect("the engine gives an empty prompt a BOS");
        let seq = backend.create();
        let out = StepOutput::default();
        let mut source = Source { backend, seq, last: *last, committed: before.len(), out };
        let full = LayerPlan::full(source.backend.n_layers());
        let rows: Vec<Row> =
            before.iter().enumerate().map(|(pos, t)| source.token_row(pos, *t, &full, false)).collect();
        for chunk in rows.chunks(128) {
            source.backend.step(chunk, &mut source.out)?;
        }
        source.backend.set_len(seq, before.len())?;
        Ok(source)
    }

    fn token_row(&self, pos: usize, token: TokenId, plan: &LayerPlan, logits: bool) -> Row {
        let readout = if logits { Readout::Head } else { Readout::Nothing };
        let (enter, plan) = (Enter::Token, plan.clone());
        Row { seq: self.seq, pos, token, enter, plan, keep: false, readout, exit_kv: false }
    }

    /// Logits of `plan` after the prompt and `before`.
    fn row(&mut self, before: &[TokenId], plan: &LayerPlan) -> Result<Vec<f32>, BackendError> {
        let tokens = [self.last].into_iter().chain(before.iter().copied());
        let rows = (self.committed..).zip(tokens);
        let rows: Vec<Row> =
            rows.map(|(pos, t)| self.token_row(pos, t, plan, pos == self.committed + before.len())).collect();
        self.backend.step(&rows, &mut self.out)?;
        self.backend.set_len(self.seq, self.committed)?;
        Ok(self.out.logits(0).to_vec())
    }

    fn free(self) {
        self.backend.free(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_spread_whether_it_is_flat_or_peaked() {
        for scale in [0.01, 1.0, 30.0] {
            let row: Vec<f32> = (0..50).map(|i| -scale * i as f32).collect();
            let sampling = SamplingParams { temperature: spreading(&row), top_k: TOP_K, ..SamplingParams::default() };
            let most = distribution(&sampling, &row, &[])[0];
            assert!((0.59..0.61).contains(&most), "{scale}: {most}");
        }
        assert!(spreading(&[1.0; 9]).is_finite());
    }

    #[test]
    fn a_wrong_rule_that_is_missed_makes_the_test_untested_and_not_refuted() {
        let mut outcome = Outcome { drafted: 9, accepted: 5, rejected: 4, caught: 2, ..Outcome::default() };
        assert!(outcome.ok() && outcome.untested().is_empty());
        assert!(outcome.words().ends_with("all 2 deliberately wrong rules caught"));
        outcome.missed.push("line 1, exit 2: a rule".to_owned());
        assert!(!outcome.ok() && !outcome.refuted());
        assert_eq!(
            outcome.untested(),
            ["the test of rejection sampling does not notice a wrong rule (line 1, exit 2: a rule)"]
        );
        assert!(outcome.words().ends_with("only 2 of 3 deliberately wrong rules caught"));
    }

    #[test]
    fn a_compact_tree_keeps_paths_and_logits_together() {
        let mut tree = Tree::default();
        let mut row = vec![0.0; 100];
        row[70] = 9.0;
        tree.target.insert(Vec::new(), row.clone());
        tree.target.insert(vec![70], row);
        let compact = tree.compact();
        let root = &compact.target[&[][..]];
        assert_eq!(root.len(), KEPT);
        let at = root.iter().position(|l| *l == 9.0).expect("the most probable token is kept");
        assert!(compact.target.contains_key(&[at as TokenId][..]));
    }
}
