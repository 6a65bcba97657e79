//! The recorded steps: which kind of step each one was, and how long it took.

use selfspec_model::{Enter, LayerPlan, Readout, Row, SeqId};

use crate::draft::path::DraftPath;
use crate::policy::cost::path_record::{CONTEXT_LEVELS, PathRecord, level_of, load_of};
use crate::policy::cost::step_times::{ENOUGH_SAMPLES, STALE_AFTER, StepTimes};

/// Passes of up to this many rows have times of their own.
pub(crate) const MAX_TIMED_ROWS: usize = 64;
/// Draft paths that are remembered. Beyond that the one used least recently is forgotten.
pub(crate) const MAX_PATHS: usize = 16;
/// Steps after a prompt whose times do not last: the weights are on their way back into the
/// processor's caches. Of a model that fits them the first plain step takes 1.7 times as long as
/// the tenth, and costs that lean on the first ones would make rows look free. Such times count
/// only until there are others.
pub(crate) const COLD_STEPS: u32 = 10;
/// Weight of the latest step in the running mean of sequences in a step.
const BATCH_WEIGHT: f64 = 0.25;

/// The times of all kinds of step, and the state of the latest ones.
#[derive(Debug, Clone)]
pub(crate) struct RecordedSteps {
    /// Times of passes of the full model. Shape: (level, rows - 1).
    pub(crate) pass: [Box<[StepTimes]>; CONTEXT_LEVELS],
    /// Level of the latest decoding step.
    pub(crate) level: usize,
    pub(crate) paths: Vec<PathRecord>,
    /// Decoding steps recorded.
    pub(crate) recorded: u64,
    last_path: Option<usize>, // of the latest draft step: the next verification enters from its states
    sequences: f64,           // in a decoding step, a running mean
    drafting: usize,          // sequences that drafted in the latest step
    cold: u32,                // steps to come whose times do not last
    warm: bool,               // whether there are other times
}

impl RecordedSteps {
    pub(crate) fn new() -> Self {
        RecordedSteps {
            pass: std::array::from_fn(|_| vec![StepTimes::default(); MAX_TIMED_ROWS].into()),
            level: 0,
            paths: Vec::new(),
            recorded: 0,
            last_path: None,
            sequences: 1.0,
            drafting: 0,
            cold: 0,
            warm: false,
        }
    }

    /// Records one step of `rows` that took `seconds`; see
    /// [`CostModel::record`](crate::policy::cost::model::CostModel::record).
    pub(crate) fn record(&mut self, rows: &[Row], seconds: f64) {
        if rows.iter().any(|r| r.readout == Readout::Nothing) {
            self.cold = COLD_STEPS;
            return;
        }
        if rows.is_empty() || !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        if self.cold > 0 {
            self.cold -= 1;
            if self.warm {
                return;
            }
        } else if !std::mem::replace(&mut self.warm, true) {
            self.forget_times();
        }
        self.recorded += 1;
        let step = StepShape::of(rows);
        self.level = step.level;
        // Not all sequences draft, and the others wait meanwhile.
        self.drafting = if step.draft.is_some() { step.sequences } else { 0 };
        if step.draft.is_none() {
            self.sequences += (step.sequences as f64 - self.sequences) * BATCH_WEIGHT;
        }
        let now = self.recorded;
        if let Some(row) = step.draft {
            let at = self.path_index(&row.plan, row.readout);
            self.last_path = Some(at);
            if step.one_path {
                self.paths[at].times[step.level].draft[load_of(step.sequences)].record(seconds, now);
            }
        } else if step.kept == 0 || step.sequences > 1 {
            if let Some(pass) = self.pass[step.level].get_mut(step.kept + step.from_token - 1) {
                pass.record(seconds, now);
            }
        } else if let Some(at) = self.last_path {
            let by_kept = self.paths[at].times[step.level].verify.get_mut(step.kept);
            if let Some(verify) = by_kept.and_then(|times| times.get_mut(step.from_token)) {
                verify.record(seconds, now);
            }
        }
    }

    fn forget_times(&mut self) {
        self.pass.iter_mut().for_each(|level| level.fill(StepTimes::default()));
        self.paths.iter_mut().for_each(|path| *path.times = Default::default());
    }

    /// Whether a plain step should be timed: at the level of `pos` and the present load its time
    /// has too few samples or is old, and a step now would tell.
    pub(crate) fn plain_is_due(&self, pos: usize) -> bool {
        let pass = self.pass[level_of(pos)].get(self.batch() - 1);
        let due = |pass: &StepTimes| pass.recorded < ENOUGH_SAMPLES || self.recorded - pass.latest > STALE_AFTER;
        (self.cold == 0 || !self.warm) && pass.is_none_or(due)
    }

    /// Sequences in a step, of late.
    pub(crate) fn batch(&self) -> usize {
        (self.sequences.round() as usize).clamp(1, MAX_TIMED_ROWS)
    }

    /// Sequences that wait for another draft step or draft in it, for each one that drafted in the
    /// latest step.
    pub(crate) fn waiting_per_drafting(&self) -> f64 {
        let batch = self.batch() as f64;
        (batch / self.drafting.max(1) as f64).clamp(1.0, batch)
    }

    /// Whether any pass of the full model was recorded.
    pub(crate) fn has_pass(&self) -> bool {
        self.pass.iter().flatten().any(|p| p.recorded > 0)
    }

    pub(crate) fn path(&self, path: &DraftPath) -> Option<&PathRecord> {
        self.paths.iter().find(|p| p.path == *path)
    }

    /// The record of a path, new if there is none.
    pub(crate) fn path_mut(&mut self, path: &DraftPath) -> &mut PathRecord {
        let at = self.path_index(&path.plan, path.readout);
        &mut self.paths[at]
    }

    fn path_index(&mut self, plan: &LayerPlan, readout: Readout) -> usize {
        let known = self.paths.iter().position(|p| p.path.plan == *plan && p.path.readout == readout);
        let at = known.unwrap_or_else(|| {
            let new = PathRecord::new(DraftPath { plan: plan.clone(), readout });
            let oldest = (0..self.paths.len()).min_by_key(|i| self.paths[*i].used);
            match oldest.filter(|_| self.paths.len() >= MAX_PATHS) {
                Some(at) => {
                    self.paths[at] = new;
                    at
                }
                None => {
                    self.paths.push(new);
                    self.paths.len() - 1
                }
            }
        });
        self.paths[at].used = self.recorded;
        at
    }
}

/// What tells a decoding step's kind: its rows, counted.
struct StepShape<'a> {
    level: usize,
    kept: usize,       // rows that enter from kept states
    from_token: usize, // rows of the full plan that enter from their tokens
    sequences: usize,
    draft: Option<&'a Row>, // the last draft row
    one_path: bool,         // whether all draft rows have the same path
}

impl<'a> StepShape<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let level = level_of(rows.iter().map(|r| r.pos).max().unwrap_or(0));
        let mut shape = StepShape { level, kept: 0, from_token: 0, sequences: 0, draft: None, one_path: true };
        let mut last: Option<SeqId> = None;
        for row in rows {
            shape.sequences += usize::from(last != Some(row.seq));
            last = Some(row.seq);
            if row.enter == Enter::Kept {
                shape.kept += 1;
            } else if row.plan.is_full() {
                shape.from_token += 1;
            } else {
                shape.one_path &= shape.draft.is_none_or(|d| d.plan == row.plan && d.readout == row.readout);
                shape.draft = Some(row);
            }
        }
        shape
    }
}
