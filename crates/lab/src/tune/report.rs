//! The findings of a tuning.

use selfspec_engine::Tuning;

use super::candidate::DrafterCandidate;
use super::costs::CandidateCosts;
use super::sweep::CandidateAcceptance;

/// Speed-up below which speculation is advised against.
pub(super) const WORTH: f64 = 1.02;

/// The findings of a tuning.
#[derive(Debug, Clone)]
pub struct TuneReport {
    /// The drafters that were tried. Shape: (candidate).
    pub candidates: Vec<DrafterCandidate>,
    /// Their acceptance. Shape: (candidate).
    pub acceptance: Vec<CandidateAcceptance>,
    /// Costs at each context. Shape: (context).
    pub costs: Vec<CandidateCosts>,
    /// The candidates that ran against plain decoding, the best first.
    pub finalists: Vec<CandidateSpeed>,
    /// Tokens of the draft vocabulary and the share of unseen answers that it covers, if there is
    /// one.
    pub coverage: Option<(usize, f64)>,
    /// Prompts that ran.
    pub prompts: usize,
    /// Temperature of every request.
    pub temperature: f32,
    /// The conclusion, as later runs read it.
    pub tuning: Tuning,
}

/// A candidate's speed against plain decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateSpeed {
    /// Index of the candidate.
    pub candidate: usize,
    /// Median of the ratios to plain decoding of the same prompt.
    pub speedup: f64,
    /// Median tokens a second.
    pub tok_s: f64,
    /// Speed-up that its costs and acceptance promise at the first context.
    pub promised: f64,
    /// Speed-up to expect of it: by promise and measurement together.
    pub worth: f64,
}

impl CandidateSpeed {
    /// Whether it is fast enough to be used.
    pub fn pays(&self) -> bool {
        self.speedup >= WORTH && self.worth >= WORTH
    }
}
