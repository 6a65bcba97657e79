//! The record of one draft path: the times of its steps, and the acceptance of its drafts in
//! earlier sequences.

use crate::draft::params::MAX_DRAFT;
use crate::draft::path::DraftPath;
use crate::policy::confidence::ConfidenceRecord;
use crate::policy::cost::step_times::StepTimes;

/// Context lengths are recorded by level: up to 512 positions, up to 1024, and so on; the last
/// level has no end.
pub(crate) const CONTEXT_LEVELS: usize = 6;
/// Positions of the first level.
pub(crate) const FIRST_LEVEL: usize = 512;
/// Loads are recorded by the sequences in a draft step: 1, 2 or 3, 4 to 7, more.
pub(crate) const LOADS: usize = 4;

/// Highest weight, in verified drafts, of other sequences' acceptance as a prior for a new one.
const PRIOR_MAX_WEIGHT: f64 = 6.0;
/// Verified drafts of a sequence at which the weight of earlier sequences halves.
const EARLIER_HALF_LIFE: f64 = 32.0;
/// Verified drafts of earlier sequences that each bin of confidence remembers.
const CONFIDENCE_MEMORY: f64 = 200.0;
/// Share of them kept from one sequence to the next, so that declined confidences are tried again.
const CONFIDENCE_KEPT: f64 = 0.98;

/// Drafts of one finished sequence on one path.
#[derive(Debug, Clone)]
pub struct PathDrafts {
    /// The path.
    pub path: DraftPath,
    /// Drafts accepted.
    pub accepted: f64,
    /// Drafts verified, and those that were declined: they would hardly have been accepted.
    pub judged: f64,
    /// By confidence: of greedy drafts, of sampled ones.
    pub(crate) confidence: [ConfidenceRecord; 2],
}

/// Times of one path at one level of context lengths.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathTimes {
    /// Of a draft step. Shape: (load).
    pub(crate) draft: [StepTimes; LOADS],
    /// Of a verification. Shape: (rows from kept states, rows from tokens: 0 or 1).
    pub(crate) verify: [[StepTimes; 2]; MAX_DRAFT + 1],
}

/// What is recorded of one draft path.
#[derive(Debug, Clone)]
pub(crate) struct PathRecord {
    pub(crate) path: DraftPath,
    /// The decoding step that last used it.
    pub(crate) used: u64,
    /// Shape: (level).
    pub(crate) times: Box<[PathTimes; CONTEXT_LEVELS]>,
    accepted: f64,
    judged: f64,
    confidence: [ConfidenceRecord; 2], // of greedy drafts, of sampled ones
}

impl PathRecord {
    pub(crate) fn new(path: DraftPath) -> Self {
        let (times, confidence) = (Default::default(), Default::default());
        PathRecord { path, used: 0, times, accepted: 0.0, judged: 0.0, confidence }
    }

    /// Learns from a finished sequence; earlier sequences fade.
    pub(crate) fn record_sequence(&mut self, drafts: &PathDrafts) {
        let keep = EARLIER_HALF_LIFE / (EARLIER_HALF_LIFE + drafts.judged);
        self.accepted = self.accepted * keep + drafts.accepted;
        self.judged = self.judged * keep + drafts.judged;
        for (own, new) in self.confidence.iter_mut().zip(&drafts.confidence) {
            own.scale(CONFIDENCE_KEPT, CONFIDENCE_MEMORY);
            own.merge(new);
        }
    }

    /// The confidence record of greedy or sampled drafts.
    pub(crate) fn confidence(&self, greedy: bool) -> ConfidenceRecord {
        self.confidence[usize::from(!greedy)]
    }

    /// Accepted and verified drafts of earlier sequences, scaled down to the weight of a prior.
    pub(crate) fn acceptance_prior(&self) -> (f64, f64) {
        if self.judged <= 0.0 {
            return (0.0, 0.0);
        }
        let scale = (PRIOR_MAX_WEIGHT / self.judged).min(1.0);
        (self.accepted * scale, self.judged * scale)
    }
}

/// The level of context lengths of a position.
pub(crate) fn level_of(pos: usize) -> usize {
    let doublings = (pos / FIRST_LEVEL).checked_ilog2().map_or(0, |log| log as usize + 1);
    doublings.min(CONTEXT_LEVELS - 1)
}

/// The load of a step of so many sequences.
pub(crate) fn load_of(sequences: usize) -> usize {
    (sequences.max(1).ilog2() as usize).min(LOADS - 1)
}
