//! The cost model: prices of passes and draft steps by measured times, and the acceptance of
//! earlier sequences.
//!
//! Nothing here reads a clock: the caller supplies the time of each step. What was never measured
//! is inferred from what was, by cautious priors for the gain of speculation.

use selfspec_model::Row;

use crate::draft::path::DraftPath;
use crate::policy::confidence::ConfidenceRecord;
use crate::policy::cost::estimates::CostEstimates;
use crate::policy::cost::path_record::{PathDrafts, PathRecord, level_of};
use crate::policy::cost::recorded_steps::RecordedSteps;

/// Measured step times by kind of step. The engine records, and the speculation policy decides.
#[derive(Debug, Clone)]
pub struct CostModel {
    pub(crate) steps: RecordedSteps,
}

impl Default for CostModel {
    fn default() -> Self {
        Self::new()
    }
}

impl CostModel {
    /// A model without measurements, which answers from its priors.
    pub fn new() -> Self {
        CostModel { steps: RecordedSteps::new() }
    }

    /// Records one step of `rows` that took `seconds`. Steps with prompt rows are left out, and so
    /// are the times of the steps just after them.
    ///
    /// A step with draft rows counts as a draft step of their path even if other sequences verify
    /// in it: that is the time that drafting takes there.
    pub fn record(&mut self, rows: &[Row], seconds: f64) {
        self.steps.record(rows, seconds);
    }

    /// Learns the acceptance of a finished sequence's drafts, as the prior of later sequences.
    /// Optional: without it each sequence finds out for itself.
    pub fn record_sequence(&mut self, drafts: Option<&PathDrafts>) {
        if let Some(drafts) = drafts.filter(|drafts| drafts.judged > 0.0) {
            self.steps.path_mut(&drafts.path).record_sequence(drafts);
        }
    }

    /// The record of other sequences' drafts by their confidence.
    pub(crate) fn confidence(&self, path: &DraftPath, greedy: bool) -> ConfidenceRecord {
        self.steps.path(path).map_or_else(ConfidenceRecord::default, |p| p.confidence(greedy))
    }

    /// Accepted and verified drafts of earlier sequences, scaled down to the weight of a prior.
    pub(crate) fn acceptance_prior(&self, path: &DraftPath) -> (f64, f64) {
        self.steps.path(path).map_or((0.0, 0.0), PathRecord::acceptance_prior)
    }

    /// Whether a plain step should be timed; see [`RecordedSteps::plain_is_due`].
    pub(crate) fn plain_is_due(&self, pos: usize) -> bool {
        self.steps.plain_is_due(pos)
    }

    /// Sequences in a step, of late.
    pub(crate) fn batch(&self) -> usize {
        self.steps.batch()
    }

    /// See [`RecordedSteps::waiting_per_drafting`].
    pub(crate) fn waiting_per_drafting(&self) -> f64 {
        self.steps.waiting_per_drafting()
    }

    /// The costs at context lengths like that of position `pos`.
    pub(crate) fn at(&self, pos: usize) -> CostEstimates<'_> {
        CostEstimates::new(&self.steps, level_of(pos))
    }

    /// The costs at the context length of the latest step.
    pub(crate) fn latest(&self) -> CostEstimates<'_> {
        CostEstimates::new(&self.steps, self.steps.level)
    }

    /// Seconds of a plain decoding step of one row, at the latest context length; `None` until
    /// measured.
    pub fn plain(&self) -> Option<f64> {
        self.pass(1)
    }

    /// Seconds of a pass of the full model over `m` rows that enter from their tokens, at the
    /// latest context length; `None` until measured.
    pub fn pass(&self, m: usize) -> Option<f64> {
        self.latest().pass(m).map(|time| time.seconds)
    }

    /// Seconds of one draft step of `path`, at the latest context length; `None` until measured.
    pub fn draft(&self, path: &DraftPath) -> Option<f64> {
        self.latest().draft(path).map(|time| time.seconds)
    }

    /// c: the cost of one draft step of `path` over a plain step, measured or inferred, at the
    /// latest context length.
    pub fn c(&self, path: &DraftPath) -> f64 {
        self.latest().c(path)
    }

    /// b(m): the cost of a pass that gives each sequence m rows over one that gives each one row,
    /// measured or inferred, at the latest context length; at least 1.
    pub fn b(&self, m: usize) -> f64 {
        self.latest().b(m)
    }
}
