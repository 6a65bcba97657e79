//! A statistical proof that sampling with speculation draws from the target's distribution.
//!
//! It runs the sampler and the accept path that sequences run, many times over rows of logits that
//! the caller gives, and compares the counts of what came out with probabilities that a second,
//! plain implementation of the transforms computes exactly. That a test can fail is shown with
//! [`DraftingRule`]s that are wrong on purpose.

use std::collections::HashMap;

use selfspec_model::{LogitsError, TokenId};
use selfspec_speculate::{
    DraftToken, LogitsRow, MAX_DRAFT, ParamError, RoundPosition, Sampler, SamplingParams, SequenceSampler,
    TokenChoiceError, VerifyReadout, accept_drafts,
};

use super::chi_square::ChiSquareTest;

/// Most outcomes that are enumerated.
const MOST_OUTCOMES: usize = 1 << 20;

/// How the drafts of a trial are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DraftingRule {
    /// As sequences make them.
    Sampled,
    /// The most probable token, judged as the point mass that it is.
    Argmax,
    /// Sampled at another temperature, and judged by it: right, but fewer drafts are accepted.
    AtTemperature(f32),
    /// Sampled as they should be, but judged as if at another temperature: **wrong on purpose**.
    JudgedAtTemperature(f32),
    /// The most probable token, judged as if it had been sampled: **wrong on purpose**.
    ArgmaxJudgedAsSampled,
}

/// A trial: logits by the tokens before, and the parameters of speculation. Shape of a row:
/// (tokens).
pub struct SamplingTrial<'a> {
    /// The target's logits after these tokens.
    pub target: &'a dyn Fn(&[TokenId]) -> &'a [f32],
    /// The draft's logits after these tokens.
    pub draft: &'a dyn Fn(&[TokenId]) -> &'a [f32],
    /// The tokens of the draft's logits, ascending; `None`: all.
    pub draft_vocab: Option<&'a [TokenId]>,
    /// How tokens are chosen. With a seed, each draw has the next seed.
    pub sampling: &'a SamplingParams,
    /// Drafts in a round.
    pub k: usize,
    /// Whether a bonus token is drawn.
    pub bonus: bool,
    /// Tokens of an outcome, which are compared jointly: rounds run until there are as many.
    pub length: usize,
    /// Outcomes drawn.
    pub draws: u64,
    /// Base of the draws' random numbers.
    pub entropy: u64,
    /// How drafts are made.
    pub drafting: DraftingRule,
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialResult {
    /// The test of the outcomes' counts.
    pub test: ChiSquareTest,
    /// Tokens drafted.
    pub drafted: u64,
    /// Drafts accepted.
    pub accepted: u64,
    /// Drafts rejected.
    pub rejected: u64,
    /// Index a: rounds with a accepted drafts.
    pub accepted_lengths: [u64; MAX_DRAFT + 1],
}

/// Why a trial cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExactnessError {
    /// A parameter out of its range.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// Logits that cannot be sampled from.
    #[error("logits after {after} tokens: {fault}")]
    Logits {
        /// Tokens before.
        after: usize,
        /// What is wrong.
        fault: LogitsError,
    },
    /// More outcomes than can be enumerated.
    #[error("more than {most} outcomes of {length} tokens are possible")]
    TooManyOutcomes {
        /// Outcomes that can be.
        most: usize,
        /// Tokens of an outcome.
        length: usize,
    },
}

impl SamplingTrial<'_> {
    /// Draws, enumerates, compares.
    ///
    /// # Errors
    /// Parameters or logits that cannot be used, or too many possible outcomes.
    pub fn run(&self) -> Result<TrialResult, ExactnessError> {
        self.sampling.validate()?;
        if !(1..=MAX_DRAFT).contains(&self.k) {
            return Err(ParamError::OutOfRange { field: "k", value: self.k as f64, expected: "from 1 to 16" }.into());
        }
        let mut cells: HashMap<Vec<TokenId>, (u64, f64)> = HashMap::new();
        self.enumerate(&mut Vec::new(), 1.0, &mut cells)?;
        let mut seen = TrialResult {
            test: ChiSquareTest { statistic: 0.0, freedom: 0, p_value: 1.0, impossible: 0 },
            drafted: 0,
            accepted: 0,
            rejected: 0,
            accepted_lengths: [0; MAX_DRAFT + 1],
        };
        let mut run = TrialRun::new(self);
        for draw in 0..self.draws {
            run.outcome(draw, &mut seen)?;
            let outcome = &run.tokens[..self.length];
            match cells.get_mut(outcome) {
                Some((count, _)) => *count += 1,
                None => {
                    cells.insert(outcome.to_vec(), (1, 0.0));
                }
            }
        }
        seen.test = ChiSquareTest::of(cells.values().copied());
        Ok(seen)
    }

    /// Fills in the exact probability of every outcome that goes on from `before`.
    fn enumerate(
        &self,
        before: &mut Vec<TokenId>,
        probability: f64,
        cells: &mut HashMap<Vec<TokenId>, (u64, f64)>,
    ) -> Result<(), ExactnessError> {
        if before.len() == self.length {
            cells.insert(before.clone(), (0, probability));
            return if cells.len() > MOST_OUTCOMES {
                Err(ExactnessError::TooManyOutcomes { most: MOST_OUTCOMES, length: self.length })
            } else {
                Ok(())
            };
        }
        for (token, p) in (0..).zip(exact_distribution(self.sampling, (self.target)(before), before)) {
            if p > 0.0 {
                before.push(token);
                self.enumerate(before, probability * p, cells)?;
                before.pop();
            }
        }
        Ok(())
    }
}

/// The memory of a trial's draws.
struct TrialRun<'t, 'a> {
    trial: &'t SamplingTrial<'a>,
    sampler: SequenceSampler,
    other: Sampler, // of a rule that samples drafts in another way
    tokens: Vec<TokenId>,
    drafts: Vec<DraftToken>,
    prefix: Vec<TokenId>,
}

impl<'t, 'a> TrialRun<'t, 'a> {
    fn new(trial: &'t SamplingTrial<'a>) -> Self {
        let mut other = trial.sampling.clone();
        match trial.drafting {
            DraftingRule::Sampled => {}
            DraftingRule::AtTemperature(t) | DraftingRule::JudgedAtTemperature(t) => other.temperature = t,
            DraftingRule::Argmax | DraftingRule::ArgmaxJudgedAsSampled => other.temperature = 0.0,
        }
        TrialRun {
            trial,
            sampler: SequenceSampler::new(trial.sampling, &[], 0),
            other: Sampler::new(&other, 0),
            tokens: Vec::new(),
            drafts: Vec::new(),
            prefix: Vec::new(),
        }
    }

    /// Runs rounds until there is an outcome.
    fn outcome(&mut self, draw: u64, seen: &mut TrialResult) -> Result<(), ExactnessError> {
        let trial = self.trial;
        let base = trial.sampling.seed.unwrap_or(trial.entropy).wrapping_add(draw);
        self.sampler.restart(base, trial.sampling, &[]);
        self.other.reseed(base);
        self.tokens.clear();
        while self.tokens.len() < trial.length {
            self.propose();
            let start = self.tokens.len();
            let (tokens, prefix) = (&mut self.tokens, &self.prefix);
            let rows = |i: usize| VerifyReadout::Logits((trial.target)(&prefix[..start + i]));
            let commit = |token, _, _| {
                tokens.push(token);
                true
            };
            let accepted = accept_drafts(&mut self.sampler, &self.drafts, trial.bonus, start, rows, commit);
            let accepted = accepted.map_err(|(row, error)| match error {
                TokenChoiceError::Logits(fault) => ExactnessError::Logits { after: start + row, fault },
                TokenChoiceError::Constraint(_) => unreachable!("the trial has no constraint"),
            })?;
            seen.drafted += self.drafts.len() as u64;
            seen.accepted += accepted.accepted as u64;
            seen.rejected += u64::from(accepted.rejected);
            seen.accepted_lengths[accepted.accepted] += 1;
            self.sampler.end_round(&mut self.drafts);
        }
        Ok(())
    }

    /// Drafts k tokens after `tokens`; `prefix` then holds both.
    fn propose(&mut self) {
        self.prefix.clone_from(&self.tokens);
        for i in 0..self.trial.k {
            let logits = (self.trial.draft)(&self.prefix);
            let vocab = self.trial.draft_vocab;
            let at = RoundPosition { pos: self.prefix.len(), row: i };
            let row = LogitsRow { tokens: vocab, ..LogitsRow::all(logits) };
            let mut usual = || self.sampler.draft(logits, vocab, at, 0.0);
            let draft = match self.trial.drafting {
                DraftingRule::Sampled => usual(),
                DraftingRule::Argmax | DraftingRule::AtTemperature(_) => {
                    self.other.draft(row, self.sampler.history(), at, 0.0)
                }
                DraftingRule::JudgedAtTemperature(_) => {
                    let draft = usual();
                    let q = self.other.draft(row, self.sampler.history(), at, 0.0).and_then(|d| d.q);
                    draft.map(|d| DraftToken { q, ..d })
                }
                DraftingRule::ArgmaxJudgedAsSampled => {
                    let q = usual().and_then(|d| d.q);
                    let draft = self.other.draft(row, self.sampler.history(), at, 0.0);
                    draft.map(|d| DraftToken { q, ..d })
                }
            };
            let Some(draft) = draft else { return };
            self.sampler.add_draft(draft.token);
            self.prefix.push(draft.token);
            self.drafts.push(draft);
        }
    }
}

/// The distribution of the next token by the definition of the transforms: in f64, with a full
/// sort, sharing no code with the sampler.
pub fn exact_distribution(params: &SamplingParams, logits: &[f32], output: &[TokenId]) -> Vec<f64> {
    let mut row: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
    for (token, bias) in &params.logit_bias {
        row[*token as usize] += f64::from(*bias);
    }
    for (token, logit) in row.iter_mut().enumerate() {
        let count = output.iter().filter(|t| **t as usize == token).count();
        if count > 0 {
            let r = f64::from(params.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / r } else { *logit * r };
            *logit -= f64::from(params.frequency_penalty) * count as f64 + f64::from(params.presence_penalty);
        }
    }
    let mut order: Vec<usize> = (0..row.len()).filter(|i| row[*i] > f64::NEG_INFINITY).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    let mut p = vec![0.0; row.len()];
    let Some(first) = order.first().copied() else { return p };
    if params.is_greedy() {
        p[first] = 1.0;
        return p;
    }
    if params.top_k > 0 {
        order.truncate(params.top_k);
    }
    let weight = |i: usize| ((row[i] - row[first]) / f64::from(params.temperature)).exp();
    let total: f64 = order.iter().map(|i| weight(*i)).sum();
    if params.top_p < 1.0 {
        let mut mass = 0.0;
        let reached = order.iter().position(|i| {
            mass += weight(*i);
            mass >= f64::from(params.top_p) * total
        });
        order.truncate(reached.map_or(order.len(), |i| i + 1));
    }
    order.retain(|i| weight(*i) >= f64::from(params.min_p));
    let left: f64 = order.iter().map(|i| weight(*i)).sum();
    for i in order {
        p[i] = weight(i) / left;
    }
    p
}
