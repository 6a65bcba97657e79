//! Costs of drafts and verifications, and the speed-up that they promise at a given acceptance.

use selfspec_engine::Engine;

use super::candidate::DrafterCandidate;
use super::sweep::CandidateAcceptance;
use crate::error::LabError;
use crate::measure::{MeasureOptions, Measurements};
use crate::progress::{Stage, StageProgress};
use crate::statistics::{LONGEST_CONSIDERED, best_draft_len, promised_speedup};

/// Rows of the verification of the longest draft that is considered.
pub(super) const ROWS: usize = LONGEST_CONSIDERED + 1;
/// Repetitions of each measurement; medians count.
const REPETITIONS: usize = 15;

/// CandidateCosts at one context, over a plain step.
#[derive(Debug, Clone)]
pub struct CandidateCosts {
    /// Positions before the measured rows.
    pub context: usize,
    /// b(m), the cost of verifying m rows. Shape: (m - 1), m from 1 to 9.
    pub b: Vec<f64>,
    /// c of each candidate; 0 if it copies. Shape: (candidate).
    pub c: Vec<f64>,
    /// Milliseconds of a plain step.
    pub plain_ms: f64,
}

/// Times passes and draft steps at each context.
pub(super) fn measure(
    engine: &Engine,
    candidates: &[DrafterCandidate],
    contexts: &[usize],
    progress: &dyn StageProgress,
) -> Result<Vec<CandidateCosts>, LabError> {
    let stage = Stage::begin(progress, "measuring costs", contexts.len());
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
        costs.push(CandidateCosts::of(&crate::measure::measure(engine, &options)?, candidates));
        stage.step();
    }
    Ok(costs)
}

impl CandidateCosts {
    fn of(measured: &Measurements, candidates: &[DrafterCandidate]) -> CandidateCosts {
        let c = |candidate: &DrafterCandidate| candidate.path.as_ref().and_then(|path| measured.c(path)).unwrap_or(0.0);
        CandidateCosts {
            context: measured.context,
            b: (1..=ROWS).map(|m| measured.b(m).unwrap_or(1.0).max(1.0)).collect(),
            c: candidates.iter().map(c).collect(),
            plain_ms: measured.plain_s().unwrap_or(0.0) * 1e3,
        }
    }

    /// The speed-up that rounds of `k` drafts of a candidate promise.
    pub fn speedup(&self, candidate: usize, acceptance: &CandidateAcceptance, k: usize) -> f64 {
        promised_speedup(self.c[candidate], &self.b, k, &|place| acceptance.at(place))
    }

    /// The draft length of a candidate that promises most, and the speed-up that it promises.
    pub fn best(&self, candidate: usize, acceptance: &CandidateAcceptance) -> (usize, f64) {
        best_draft_len(self.c[candidate], &self.b, &|place| acceptance.at(place))
    }
}

/// Candidates in the order of their promise, the best first. Prompt lookup comes first if it was
/// accepted at all: it proposes only after a match, so that its rounds are few or many by the
/// prompt and only a run can tell.
pub(super) fn ranking(
    candidates: &[DrafterCandidate],
    acceptance: &[CandidateAcceptance],
    costs: &CandidateCosts,
) -> Vec<usize> {
    let promise = |i: usize| costs.best(i, &acceptance[i]).1;
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| {
        let copies = |i: usize| candidates[i].path.is_none();
        copies(*b).cmp(&copies(*a)).then(promise(*b).total_cmp(&promise(*a)))
    });
    order
}
