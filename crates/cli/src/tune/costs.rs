//! What drafts and verifications cost, and what speed-up that promises with a given acceptance.

use selfspec_engine::Engine;
use selfspec_lab::measure::{MeasureOptions, Measurements};

use super::candidate::Candidate;
use super::sweep::Acceptance;
use crate::output::Ui;
use crate::progress::Steps;

/// Longest draft that is considered.
pub(crate) const LONGEST: usize = 8;
/// Rows of its verification.
pub(crate) const ROWS: usize = LONGEST + 1;
/// Repetitions of each measurement; medians count.
const REPETITIONS: usize = 15;

/// Costs at one context, over a plain step.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    pub(crate) context: usize,
    /// b(m) for m from 1 to [`ROWS`].
    pub(crate) b: Vec<f64>,
    /// c of each candidate; 0 where it copies.
    pub(crate) c: Vec<f64>,
    /// Milliseconds of a plain step.
    pub(crate) plain_ms: f64,
}

/// Times passes and draft steps at each context.
pub(crate) fn measure(
    engine: &Engine,
    candidates: &[Candidate],
    contexts: &[usize],
    ui: &Ui,
) -> anyhow::Result<Vec<Costs>> {
    let steps = Steps::new(ui, "measuring costs", contexts.len() as u64);
    let mut costs = Vec::new();
    for context in contexts {
        let options = MeasureOptions {
            context: *context,
            rows: (1..=ROWS).collect(),
            paths: candidates.iter().filter_map(|c| c.path.clone()).collect(),
            repetitions: REPETITIONS,
            prefill: 0,
            ..MeasureOptions::default()
        };
        costs.push(Costs::of(&selfspec_lab::measure::measure(engine, &options)?, candidates));
        steps.step();
    }
    Ok(costs)
}

impl Costs {
    fn of(measured: &Measurements, candidates: &[Candidate]) -> Costs {
        let c = |candidate: &Candidate| candidate.path.as_ref().and_then(|path| measured.c(path)).unwrap_or(0.0);
        Costs {
            context: measured.context,
            b: (1..=ROWS).map(|m| measured.b(m).unwrap_or(1.0).max(1.0)).collect(),
            c: candidates.iter().map(c).collect(),
            plain_ms: measured.plain_s().unwrap_or(0.0) * 1e3,
        }
    }

    /// The speed-up that rounds of `k` drafts promise: tokens a round over its cost.
    pub(crate) fn speedup(&self, candidate: usize, acceptance: &Acceptance, k: usize) -> f64 {
        let (mut tokens, mut reached) = (1.0, 1.0);
        for place in 0..k {
            reached *= acceptance.at(place);
            tokens += reached;
        }
        tokens / (self.c[candidate] * k as f64 + self.b[k])
    }

    /// The draft length that promises most, and what it promises.
    pub(crate) fn best(&self, candidate: usize, acceptance: &Acceptance) -> (usize, f64) {
        let all = (1..=LONGEST).map(|k| (k, self.speedup(candidate, acceptance, k)));
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0))
    }
}

/// Candidates in the order of what they promise, the best first. Prompt lookup, which proposes only where it has a match, comes first if it was accepted at
/// all: its rounds are few or many by the prompt, so that only a run can tell.
pub(crate) fn ranking(candidates: &[Candidate], acceptance: &[Acceptance], costs: &Costs) -> Vec<usize> {
    let promise = |i: usize| costs.best(i, &acceptance[i]).1;
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| {
        let copies = |i: usize| candidates[i].path.is_none();
        copies(*b).cmp(&copies(*a)).then(promise(*b).total_cmp(&promise(*a)))
    });
    order
}
