//! Rejection sampling as a distribution, on this model's own logits.
//!
//! Unseeded sampling draws other tokens with speculation than without, from the same distribution.
//! The rows of logits that a round can meet after a few real prompts are computed once, by the full
//! model and by early exits. Then the accept path runs tens of thousands of times over them, and a
//! chi-square test compares the tokens with exact enumeration.
//!
//! Acceptance rules that are wrong on purpose must each fail that test after every prompt, or it
//! has tested nothing. A wrong rule shows only where several tokens are likely and the draft
//! proposes them. An early exit of an untrained model may never do so: for these trials the rows of
//! the full model draft, at a temperature that spreads them.

use std::fmt;
use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions, LoadedModel};
use selfspec_kernels::KvType;
use selfspec_model::{LayerPlan, TokenId};
use selfspec_speculate::SamplingParams;

use super::logit_tree::{LogitTree, LogitTreeShape};
use super::setting::VerifiedDrafter;
use crate::error::LabError;
use crate::progress::{Stage, StageProgress};
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::{DraftingRule, ExactnessError, SamplingTrial, TrialResult, exact_distribution};

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
/// The rows that a trial can meet.
const SHAPE: LogitTreeShape = LogitTreeShape { top_k: TOP_K, draft_len: K, length: LENGTH };

/// The trials of rejection sampling.
#[derive(Debug, Clone, Default)]
pub struct SamplingTrials {
    /// Trials of the right rule.
    pub trials: usize,
    /// Outcomes drawn in each.
    pub draws_each: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Of these, tokens accepted.
    pub accepted: u64,
    /// Of these, tokens rejected.
    pub rejected: u64,
    /// The smallest p-value of all trials.
    pub least_p: Option<f64>,
    /// Trials that the right rule failed, a sentence each: the rule is wrong.
    pub failures: Vec<String>,
    /// Trials that caught a deliberately wrong rule.
    pub caught: usize,
    /// Deliberately wrong rules that a trial did not notice.
    pub missed: Vec<String>,
}

/// The trials in one line.
impl fmt::Display for SamplingTrials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SamplingTrials { trials, draws_each, drafted, accepted, rejected, least_p, failures, caught, missed } =
            self;
        write!(
            f,
            "{trials} trials of {draws_each} outcomes, {drafted} drafted, {accepted} accepted, {rejected} rejected; "
        )?;
        write!(f, "least p-value {:.1e}; ", least_p.unwrap_or(1.0))?;
        match caught + missed.len() {
            wrong if missed.is_empty() => write!(f, "all {wrong} deliberately wrong rules caught")?,
            wrong => write!(f, "only {caught} of {wrong} deliberately wrong rules caught")?,
        }
        failures.iter().try_for_each(|failure| write!(f, "; {failure}"))
    }
}

impl SamplingTrials {
    /// Whether every trial passed, every wrong rule was caught, and drafts were accepted and
    /// rejected.
    pub fn ok(&self) -> bool {
        let seen = self.drafted > 0 && self.accepted > 0 && self.rejected > 0;
        self.failures.is_empty() && self.missed.is_empty() && self.caught > 0 && seen
    }

    /// Whether a trial showed the rule to be wrong, and not just too little to judge it.
    pub fn refuted(&self) -> bool {
        !self.failures.is_empty()
    }

    /// What the trials could not judge, a sentence each.
    pub fn untested(&self) -> Vec<String> {
        let missed = |rule| format!("the test of rejection sampling does not notice a wrong rule ({rule})");
        let mut untested: Vec<String> = self.missed.iter().map(missed).collect();
        if untested.is_empty() && !self.ok() && !self.refuted() {
            untested.push("the test of rejection sampling had too little to judge".to_owned());
        }
        untested
    }

    fn count(&mut self, what: &str, result: &TrialResult) {
        self.trials += 1;
        self.draws_each = DRAWS;
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
pub(super) fn test(
    loaded: &Arc<LoadedModel>,
    prompts: &[PromptCase],
    style: PromptStyle,
    threads: usize,
    kv_type: KvType,
    progress: &dyn StageProgress,
) -> Result<SamplingTrials, LabError> {
    let options = EngineOptions { threads: Some(threads), kv_type, max_batch: 1, ..EngineOptions::default() };
    let engine = Engine::open_with(loaded, &options)?;
    let n_layers = engine.n_layers();
    let exits: Vec<usize> = VerifiedDrafter::all(n_layers, false, None)
        .iter()
        .filter_map(|d| if let VerifiedDrafter::Exit(exit) = d { Some(*exit) } else { None })
        .collect();
    let mut outcome = SamplingTrials::default();
    if exits.is_empty() {
        outcome.failures.push(format!("a model of {n_layers} layers has no early exit to draft with"));
        return Ok(outcome);
    }
    let stride = prompts.len().div_ceil(PROMPTS).max(1);
    let chosen: Vec<&PromptCase> = prompts.iter().step_by(stride).collect();
    let stage = Stage::begin(progress, "testing distributions", chosen.len());
    for (i, case) in chosen.into_iter().enumerate() {
        let tokens = engine.encode(&case.prompt(style))?;
        // Each prompt has another exit, so that good and bad drafts both occur.
        let exit = exits[(exits.len() - 1 + i) % exits.len()];
        let plan = LayerPlan::exit(n_layers, exit)?;
        let tree = engine.exclusive(move |backend| LogitTree::collect(backend, &tokens, &plan, SHAPE))??.compact();
        let place = format!("line {}, exit {exit}", case.line);
        let trials = run_trials(&tree, &place, &mut outcome);
        trials.map_err(|source| LabError::Trial { place, source })?;
        stage.step();
    }
    Ok(outcome)
}

fn run_trials(tree: &LogitTree, place: &str, outcome: &mut SamplingTrials) -> Result<(), ExactnessError> {
    let narrow = SamplingParams { temperature: 1.0, top_k: TOP_K, ..SamplingParams::default() };
    let cut = SamplingParams { temperature: 0.8, top_p: 0.95, ..narrow.clone() };
    let wide = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let target = |before: &[TokenId]| tree.target.get(before).map_or(&[][..], Vec::as_slice);
    let draft = |before: &[TokenId]| tree.draft.get(before).map_or(&[][..], Vec::as_slice);
    let trial = |sampling| SamplingTrial {
        target: &target,
        draft: &draft,
        draft_vocab: None,
        sampling,
        k: K,
        bonus: true,
        length: LENGTH,
        draws: DRAWS,
        entropy: 1,
        drafting: DraftingRule::Sampled,
    };
    outcome.count(&format!("{place}, top-k {TOP_K}"), &trial(&narrow).run()?);
    outcome.count(&format!("{place}, top-p 0.95"), &trial(&cut).run()?);
    // Without truncation any token may follow: only the first one is compared, and no row after it
    // is needed.
    let first = SamplingTrial { k: 1, length: 1, bonus: false, ..trial(&wide) };
    outcome.count(&format!("{place}, temperature 0.8"), &first.run()?);
    outcome.count(
        &format!("{place}, point mass"),
        &SamplingTrial { drafting: DraftingRule::Argmax, ..trial(&narrow) }.run()?,
    );
    let (vocab, some) = tree.half_the_draft();
    let draft_of_half = |before: &[TokenId]| some.get(before).map_or(&[][..], Vec::as_slice);
    let halved = SamplingTrial { draft: &draft_of_half, draft_vocab: Some(&vocab), ..trial(&narrow) };
    outcome.count(&format!("{place}, half the vocabulary"), &halved.run()?);
    let spread = SamplingParams { temperature: spreading(&tree.target[&[][..]]), ..narrow.clone() };
    for (rule, wrong) in [
        ("the most probable token judged as if sampled", DraftingRule::ArgmaxJudgedAsSampled),
        ("drafts judged at another temperature", DraftingRule::JudgedAtTemperature(3.0 * spread.temperature)),
    ] {
        if (SamplingTrial { draft: &target, drafting: wrong, ..trial(&spread) }).run()?.test.passes() {
            outcome.missed.push(format!("{place}: {rule}"));
        } else {
            outcome.caught += 1;
        }
    }
    Ok(())
}

/// The temperature at which the most probable token of a row has a probability of about 0.6 among
/// the first [`TOP_K`]. Then a wrong rule changes the distribution by far more than the noise of
/// [`DRAWS`] outcomes. `row` shape: (token).
fn spreading(row: &[f32]) -> f32 {
    let most = |temperature| {
        let sampling = SamplingParams { temperature, top_k: TOP_K, ..SamplingParams::default() };
        exact_distribution(&sampling, row, &[]).into_iter().fold(0.0, f64::max)
    };
    let (mut low, mut high) = (0.01_f32, 100.0_f32);
    for _ in 0..32 {
        let middle = (low * high).sqrt();
        if most(middle) > 0.6 { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_rules_are_counted() {
        let mut trials = SamplingTrials { caught: 2, ..SamplingTrials::default() };
        assert!(trials.to_string().ends_with("all 2 deliberately wrong rules caught"));
        trials.missed.push("line 1, exit 2: a rule".to_owned());
        assert!(trials.to_string().ends_with("only 2 of 3 deliberately wrong rules caught"));
    }

    #[test]
    fn a_row_is_spread_whether_it_is_flat_or_peaked() {
        for scale in [0.01, 1.0, 30.0] {
            let row: Vec<f32> = (0..50).map(|i| -scale * i as f32).collect();
            let sampling = SamplingParams { temperature: spreading(&row), top_k: TOP_K, ..SamplingParams::default() };
            let most = exact_distribution(&sampling, &row, &[])[0];
            assert!((0.59..0.61).contains(&most), "{scale}: {most}");
        }
        assert!(spreading(&[1.0; 9]).is_finite());
    }

    #[test]
    fn a_wrong_rule_that_is_missed_makes_the_test_untested_and_not_refuted() {
        let mut outcome =
            SamplingTrials { drafted: 9, accepted: 5, rejected: 4, caught: 2, ..SamplingTrials::default() };
        assert!(outcome.ok() && outcome.untested().is_empty());
        outcome.missed.push("line 1, exit 2: a rule".to_owned());
        assert!(!outcome.ok() && !outcome.refuted());
        assert_eq!(
            outcome.untested(),
            ["the test of rejection sampling does not notice a wrong rule (line 1, exit 2: a rule)"]
        );
    }
}
