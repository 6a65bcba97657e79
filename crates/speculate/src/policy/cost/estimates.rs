//! The cost of a pass, a draft step and a verification at one context length, measured or inferred.
//!
//! What was not measured there is taken from the nearest level of context lengths where it was,
//! scaled by the plain steps of both. What was measured nowhere comes from priors.

use selfspec_model::Readout;

use crate::draft::params::MAX_DRAFT;
use crate::draft::path::DraftPath;
use crate::policy::cost::path_record::{CONTEXT_LEVELS, LOADS, load_of};
use crate::policy::cost::recorded_steps::{MAX_TIMED_ROWS, RecordedSteps};
use crate::policy::cost::step_times::MeasuredTime;

/// Prior: what each row beyond the first adds to a pass, as a share of a pass of one row.
pub(crate) const ROW_SHARE: f64 = 0.06;
/// Prior: the layers' share of a plain step. The rest is the head, which a draft cannot skip.
const LAYERS_SHARE: f64 = 0.8;
/// Prior: the share of a plain step that the head of a draft vocabulary takes, or an exit head with
/// its layer.
const SMALL_HEAD_SHARE: f64 = 0.1;

/// The costs at one level of context lengths.
#[derive(Clone, Copy)]
pub(crate) struct CostEstimates<'a> {
    steps: &'a RecordedSteps,
    level: usize,
    passes: [Option<MeasuredTime>; MAX_TIMED_ROWS], // (rows - 1)
}

impl<'a> CostEstimates<'a> {
    pub(crate) fn new(steps: &'a RecordedSteps, level: usize) -> Self {
        let mut here = CostEstimates { steps, level, passes: [None; MAX_TIMED_ROWS] };
        for at in 0..MAX_TIMED_ROWS {
            let times = |level: usize| steps.pass[level].get(at)?.measured(steps.recorded, steps.batch());
            here.passes[at] = here.at_nearest_level(times);
        }
        here
    }

    /// c: the cost of one draft step of `path` over a plain step, measured or inferred.
    pub(crate) fn c(&self, path: &DraftPath) -> f64 {
        let plan = &path.plan;
        let layers = LAYERS_SHARE * plan.cost_layers() as f64 / plan.n_layers() as f64;
        let inferred = match path.readout {
            Readout::Nothing | Readout::Head => 1.0 - LAYERS_SHARE + layers,
            Readout::DraftVocab | Readout::ExitHead => SMALL_HEAD_SHARE + layers,
        };
        match self.draft(path).filter(|_| self.steps.has_pass()) {
            Some(measured) => {
                let plain = self.estimate(self.steps.batch());
                measured.bounded_by(inferred * plain) / plain
            }
            None => inferred,
        }
    }

    /// b(m): the cost of a pass that gives each sequence m rows over one that gives each one row,
    /// measured or inferred; at least 1.
    pub(crate) fn b(&self, m: usize) -> f64 {
        let batch = self.steps.batch();
        (self.estimate(batch * m) / self.estimate(batch)).max(1.0)
    }

    /// The cost of a verification over a plain step. `kept` rows of the sequence enter from states
    /// that `path` kept, and `from_token` rows from their tokens.
    pub(crate) fn verify(&self, path: Option<&DraftPath>, kept: usize, from_token: usize) -> f64 {
        let rows = self.b(kept + from_token);
        let Some(path) = path.filter(|p| kept > 0 && p.plan.exact_prefix() > 0) else { return rows };
        let (plan, n) = (&path.plan, path.plan.n_layers() as f64);
        let inferred = if from_token > 0 {
            rows // the row from the token reads all layers
        } else {
            let share = match path.readout {
                // c = 1 - share * (1 - layers run / layers), which gives the layers' share of a
                // plain step.
                Readout::Head => ((1.0 - self.c(path)) / (1.0 - plan.cost_layers() as f64 / n)).clamp(0.0, 1.0),
                _ => LAYERS_SHARE,
            };
            rows * (1.0 - share * plan.exact_prefix() as f64 / n)
        };
        if self.steps.batch() > 1 || !self.steps.has_pass() {
            return inferred;
        }
        let Some(own) = self.steps.path(path) else { return inferred };
        let kind = |level: usize, kept: usize| own.times[level].verify.get(kept)?.get(from_token);
        let measured = |kept: usize| {
            // Most kinds never ran at any context length.
            (0..CONTEXT_LEVELS).any(|level| kind(level, kept).is_some_and(|times| times.recorded > 0)).then_some(())?;
            self.at_nearest_level(|level| kind(level, kept)?.measured(self.steps.recorded, 1))
        };
        let plain = self.estimate(1);
        if let Some(measured) = measured(kept) {
            return measured.bounded_by(inferred * plain) / plain;
        }
        // One that never ran costs as much as the nearest trusted one, scaled by the number of
        // rows.
        let nearest = (1..=MAX_DRAFT).flat_map(|d| [kept.checked_sub(d).filter(|k| *k > 0), Some(kept + d)]);
        let trusted = |kept: usize| Some((kept, measured(kept).filter(|m| m.is_trusted())?.seconds / plain));
        let found = nearest.flatten().find_map(trusted);
        found.map_or(inferred, |(near, cost)| cost * rows / self.b(near + from_token))
    }

    /// The time of a pass of `m` rows; `None` if it was not measured.
    pub(crate) fn pass(&self, m: usize) -> Option<MeasuredTime> {
        self.passes.get(m.checked_sub(1)?).copied().flatten()
    }

    /// The time of one draft step of `path`, from the nearest load; `None` if it was not measured.
    pub(crate) fn draft(&self, path: &DraftPath) -> Option<MeasuredTime> {
        let own = self.steps.path(path)?;
        let load = load_of(self.steps.batch());
        let nearest =
            (0..LOADS).map(|d| [load.checked_sub(d), Some(load + d)]).flat_map(|pair| pair.into_iter().flatten());
        nearest.filter(|load| *load < LOADS).find_map(|load| {
            self.at_nearest_level(|level| {
                own.times[level].draft[load].measured(self.steps.recorded, self.steps.batch())
            })
        })
    }

    /// The time that `get` finds at this level, or at the nearest one, scaled.
    fn at_nearest_level(&self, get: impl Fn(usize) -> Option<MeasuredTime>) -> Option<MeasuredTime> {
        if let Some(measured) = get(self.level) {
            return Some(measured);
        }
        let plain = |level: usize| self.steps.pass[level].get(self.steps.batch() - 1)?.median();
        let nearest = (1..CONTEXT_LEVELS).flat_map(|d| [self.level.checked_sub(d), Some(self.level + d)]);
        nearest.flatten().filter(|level| *level < CONTEXT_LEVELS).find_map(|level| {
            let MeasuredTime { seconds, samples } = get(level)?;
            let scale = plain(self.level).zip(plain(level)).map_or(1.0, |(here, there)| here / there);
            Some(MeasuredTime { seconds: seconds * scale, samples })
        })
    }

    /// The cost of a pass of `m` rows: in seconds if any pass was measured, else in plain steps.
    fn estimate(&self, m: usize) -> f64 {
        let prior = |m: usize| 1.0 + ROW_SHARE * (m as f64 - 1.0);
        let trusted = |m: usize| self.pass(m).filter(|p| p.is_trusted()).map(|p| (m, p.seconds));
        // A time with few samples is bounded by the nearest trusted pass of fewer rows.
        let known = |m: usize| {
            let measured = self.pass(m)?;
            let below = (1..m).rev().find_map(trusted);
            Some((m, below.map_or(measured.seconds, |(a, seconds)| measured.bounded_by(seconds * prior(m) / prior(a)))))
        };
        if let Some((_, seconds)) = known(m) {
            return seconds;
        }
        let below = (1..m.min(MAX_TIMED_ROWS + 1)).rev().find_map(known);
        let above = (m + 1..=MAX_TIMED_ROWS).find_map(known);
        match (below, above) {
            (Some((a, at_a)), Some((b, at_b))) => at_a + (at_b - at_a) * (m - a) as f64 / (b - a) as f64,
            (Some((a, seconds)), None) | (None, Some((a, seconds))) => seconds * prior(m) / prior(a),
            (None, None) => prior(m),
        }
    }
}
