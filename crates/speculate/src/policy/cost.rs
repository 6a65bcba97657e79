//! What steps cost, learnt from the times that the engine measures.
//!
//! Nothing here reads a clock: the engine calls [`CostModel::record`] with each step's rows and time. Steps are told apart by their rows,
//! and a kind of step is worth the median of its latest times, so that one step that lost its core to another process changes nothing. What was
//! never measured is inferred from what was, by priors that are modest about speculation.

use selfspec_model::{Enter, LayerPlan, Readout, Row, SeqId};

use crate::draft::path::DraftPath;
use crate::params::MAX_DRAFT;
use crate::policy::confidence::Confidence;
use crate::stats::{DrafterKind, SpecStats};

/// Passes of up to this many rows have medians of their own.
const ROWS: usize = 64;
/// Contexts are told apart by length: up to 512 positions, up to 1024, and so on; the last level has no end.
const LEVELS: usize = 6;
const FIRST_LEVEL: usize = 512;
/// Loads are told apart where drafts share their step: 1 sequence, 2 or 3, 4 to 7, more.
const LOADS: usize = 4;
/// Ways to draft that are remembered; beyond that the one that was used least recently is forgotten.
const PATHS: usize = 16;
/// Prior: what each row beyond the first adds to a pass, as a share of a pass of one row.
const ROW_SHARE: f64 = 0.06;
/// Prior: the layers' share of a plain step; the rest is the head, which a draft cannot skip.
const LAYER_SHARE: f64 = 0.8;
/// Prior: the share of a plain step that the head of a draft vocabulary takes, and an exit head with its layer.
const SMALL_HEAD_SHARE: f64 = 0.1;
/// Most weight, in judged drafts, that other sequences' acceptance has as a prior for a new one.
const PRIOR_WEIGHT: f64 = 6.0;
/// Samples from which a time is believed as it is.
const SURE: usize = 3;
/// What each sample before that allows a time to be above what was inferred.
const SLACK: f64 = 0.3;
/// Decoding steps after which the samples of a time count half, and after which a new one begins anew.
const STALE: u64 = 256;
/// Steps after one that read a prompt whose times do not last: the weights are on their way back into the processor's caches. Of a model that fits them
/// the first plain step takes 1.7 times as long as the tenth, and costs that lean on the first ones would make rows look free. Such times count only until
/// there are others.
const COLD: u32 = 10;

/// Judged drafts of earlier sequences that are remembered in each bin of confidence.
const CONFIDENCE_MEMORY: f64 = 200.0;
/// What of them is kept from one sequence to the next, so that what is left out is tried again some day.
const CONFIDENCE_KEEP: f64 = 0.98;

/// The median of the latest times of one kind of step.
#[derive(Debug, Clone, Copy, Default)]
struct Median {
    times: [f64; 9],
    recorded: usize,
    median: f64,
    latest: u64, // decoding step of the latest time
}

impl Median {
    fn record(&mut self, seconds: f64, step: u64) {
        if step - self.latest > STALE {
            self.recorded = 0; // what was so long ago was on another machine, as it were
        }
        self.latest = step;
        self.times[self.recorded % self.times.len()] = seconds;
        self.recorded += 1;
        let n = self.recorded.min(self.times.len());
        let mut sorted = self.times;
        sorted[..n].sort_unstable_by(f64::total_cmp);
        self.median = sorted[(n - 1) / 2];
    }

    fn get(&self) -> Option<f64> {
        (self.recorded > 0).then_some(self.median)
    }

    /// The median, and what it stands on at decoding step `now`. Steps of a batch are of so many kinds that none is timed often, and where rows are dear each
    /// try costs all its sequences a round: there every time is believed.
    fn measured(&self, now: u64, batch: usize) -> Option<Measured> {
        let halvings = ((now - self.latest) / STALE).min(8) as usize;
        let samples = if batch == 1 { self.recorded.min(self.times.len()) >> halvings } else { SURE };
        self.get().map(|seconds| Measured { seconds, samples })
    }
}

/// A measured time. Noise only ever adds to one, so a time that few or old samples say counts up to a bound about what was inferred: else one step that lost its
/// core would keep a drafter from ever being measured again.
#[derive(Debug, Clone, Copy)]
struct Measured {
    seconds: f64,
    samples: usize,
}

impl Measured {
    fn is_sure(self) -> bool {
        self.samples >= SURE
    }

    /// The time, where `inferred` is what it would be taken for if it had not been measured.
    fn against(self, inferred: f64) -> f64 {
        let bound = if self.is_sure() { f64::INFINITY } else { inferred * (1.0 + SLACK * self.samples as f64) };
        self.seconds.min(bound)
    }
}

/// What is known of one way to draft.
#[derive(Debug, Clone)]
struct PathCosts {
    path: DraftPath,
    used: u64,
    times: Box<[PathTimes; LEVELS]>,
    accepted: f64,
    judged: f64,
    confidence: [Confidence; 2], // of greedy drafts, of sampled ones
}

/// Times of one way to draft at one level of contexts.
#[derive(Debug, Clone, Default)]
struct PathTimes {
    draft: [Median; LOADS],
    verify: [[Median; 2]; MAX_DRAFT + 1], // (rows from kept states, rows from tokens: 0 or 1)
}

/// Measured step times by kind of step. The engine records, speculation decides.
#[derive(Debug, Clone)]
pub struct CostModel {
    pass: [Box<[Median]>; LEVELS], // (level, rows - 1)
    level: usize,                  // of the latest decoding step
    paths: Vec<PathCosts>,
    recorded: u64,
    last_path: Option<usize>, // of the latest draft step: whose states the next verification enters from
    sequences: f64,           // in a decoding step, lately
    drafting: usize,          // sequences that drafted in the latest step
    cold: u32,                // steps to come whose times do not last
    warm: bool,               // whether there are other times
}

impl Default for CostModel {
    fn default() -> Self {
        Self::new()
    }
}

impl CostModel {
    /// A model that has seen nothing and answers from its priors.
    pub fn new() -> Self {
        CostModel {
            pass: std::array::from_fn(|_| vec![Median::default(); ROWS].into()),
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

    /// Takes note of one step of `rows` that took `seconds`. Steps with prompt rows in them tell nothing and are left out, and so
    /// are the times of those just after them.
    ///
    /// A step with draft rows counts as a draft step of their plan even if other sequences verify in it: that is the time that drafting
    /// takes there.
    pub fn record(&mut self, rows: &[Row], seconds: f64) {
        if rows.iter().any(|r| r.readout == Readout::Nothing) {
            self.cold = COLD;
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
        let level = level_of(rows.iter().map(|r| r.pos).max().unwrap_or(0));
        self.level = level;
        let (mut kept, mut from_token, mut sequences) = (0, 0, 0);
        let mut draft: Option<&Row> = None;
        let mut one_path = true;
        let mut last: Option<SeqId> = None;
        for row in rows {
            sequences += usize::from(last != Some(row.seq));
            last = Some(row.seq);
            if row.enter == Enter::Kept {
                kept += 1;
            } else if row.plan.is_full() {
                from_token += 1;
            } else {
                one_path &= draft.is_none_or(|d| d.plan == row.plan && d.readout == row.readout);
                draft = Some(row);
            }
        }
        // Not all sequences draft, and the others wait meanwhile.
        self.drafting = if draft.is_some() { sequences } else { 0 };
        if draft.is_none() {
            self.sequences += (sequences as f64 - self.sequences) * 0.25;
        }
        if let Some(row) = draft {
            let at = self.path_index(&row.plan, row.readout);
            self.last_path = Some(at);
            if one_path {
                self.paths[at].times[level].draft[load_of(sequences)].record(seconds, self.recorded);
            }
        } else if kept == 0 || sequences > 1 {
            if let Some(pass) = self.pass[level].get_mut(kept + from_token - 1) {
                pass.record(seconds, self.recorded);
            }
        } else if let Some(at) = self.last_path
            && let Some(verify) = self.paths[at].times[level].verify.get_mut(kept).and_then(|v| v.get_mut(from_token))
        {
            verify.record(seconds, self.recorded);
        }
    }

    /// Learns from a finished sequence how often the drafts of its plan were accepted, so that the next sequence need not find out from
    /// nothing. Optional: without it each sequence tries for itself.
    pub fn learn(&mut self, stats: &SpecStats) {
        let Some(path) = &stats.path else { return };
        let exit_head = path.readout == Readout::ExitHead;
        let drafts = stats.drafter(if exit_head { DrafterKind::ExitHead } else { DrafterKind::LayerSkip });
        // What was left out as too unsure would hardly have been accepted.
        let judged = (drafts.accepted + drafts.rejected + drafts.declined) as f64;
        let accepted = drafts.accepted as f64;
        if judged == 0.0 {
            return;
        }
        let at = self.path_index(&path.plan, path.readout);
        let own = &mut self.paths[at];
        let keep = 32.0 / (32.0 + judged); // older sequences fade as newer ones come
        own.accepted = own.accepted * keep + accepted;
        own.judged = own.judged * keep + judged;
        for (own, new) in own.confidence.iter_mut().zip(&stats.confidence) {
            own.age(CONFIDENCE_KEEP, CONFIDENCE_MEMORY);
            own.merge(new);
        }
    }

    /// How drafts of other sequences fared by their confidence.
    pub(crate) fn confidence(&self, path: &DraftPath, greedy: bool) -> Confidence {
        self.path_costs(path).map_or_else(Confidence::default, |p| p.confidence[usize::from(!greedy)])
    }

    /// Accepted and judged drafts of earlier sequences, scaled down to the weight of a prior.
    pub(crate) fn prior(&self, path: &DraftPath) -> (f64, f64) {
        let Some(own) = self.path_costs(path).filter(|p| p.judged > 0.0) else { return (0.0, 0.0) };
        let scale = (PRIOR_WEIGHT / own.judged).min(1.0);
        (own.accepted * scale, own.judged * scale)
    }

    /// Whether a plain step would tell what one costs, at contexts like that of `pos` and the number of sequences of late, and too few of late did.
    pub(crate) fn plain_is_due(&self, pos: usize) -> bool {
        let pass = self.pass[level_of(pos)].get(self.batch() - 1);
        let due = |pass: &Median| pass.recorded < SURE || self.recorded - pass.latest > STALE;
        (self.cold == 0 || !self.warm) && pass.is_none_or(due)
    }

    fn forget_times(&mut self) {
        self.pass.iter_mut().for_each(|level| level.fill(Median::default()));
        self.paths.iter_mut().for_each(|path| *path.times = Default::default());
    }

    /// The same costs, as they are at contexts like that of `pos`.
    pub(crate) fn at(&self, pos: usize) -> CostsAt<'_> {
        CostsAt::new(self, level_of(pos))
    }

    fn here(&self) -> CostsAt<'_> {
        CostsAt::new(self, self.level)
    }

    /// Seconds of a plain decoding step of one row, at contexts as of late; `None` until measured.
    pub fn plain(&self) -> Option<f64> {
        self.pass(1)
    }

    /// Seconds of a pass of the full model over `m` rows that enter by their tokens, at contexts as of late; `None` until measured.
    pub fn pass(&self, m: usize) -> Option<f64> {
        self.here().pass(m).map(|m| m.seconds)
    }

    /// Seconds of one draft step of `path`, at contexts as of late; `None` until measured.
    pub fn draft(&self, path: &DraftPath) -> Option<f64> {
        self.here().draft(path).map(|m| m.seconds)
    }

    /// c: the cost of one draft step of `path` over a plain step, measured or inferred, at contexts as of late.
    pub fn c(&self, path: &DraftPath) -> f64 {
        self.here().c(path)
    }

    /// b(m): the cost of a pass that gives each sequence of a step m rows over one that gives it one row, measured or inferred, at contexts
    /// as of late; at least 1.
    pub fn b(&self, m: usize) -> f64 {
        self.here().b(m)
    }

    /// Sequences in a step, lately.
    pub(crate) fn batch(&self) -> usize {
        (self.sequences.round() as usize).clamp(1, ROWS)
    }

    /// For how many sequences another draft step is one of waiting or drafting, for each of those that drafted in the latest step.
    pub(crate) fn held_up(&self) -> f64 {
        let batch = self.batch() as f64;
        (batch / self.drafting.max(1) as f64).clamp(1.0, batch)
    }

    fn recorded_pass(&self) -> bool {
        self.pass.iter().flatten().any(|p| p.recorded > 0)
    }

    fn path_costs(&self, path: &DraftPath) -> Option<&PathCosts> {
        self.paths.iter().find(|p| p.path == *path)
    }

    fn path_index(&mut self, plan: &LayerPlan, readout: Readout) -> usize {
        let at = match self.paths.iter().position(|p| p.path.plan == *plan && p.path.readout == readout) {
            Some(at) => at,
            None => {
                let new = PathCosts {
                    path: DraftPath { plan: plan.clone(), readout },
                    used: 0,
                    times: Default::default(),
                    accepted: 0.0,
                    judged: 0.0,
                    confidence: Default::default(),
                };
                let oldest = (0..self.paths.len()).min_by_key(|i| self.paths[*i].used);
                match oldest.filter(|_| self.paths.len() >= PATHS) {
                    Some(at) => {
                        self.paths[at] = new;
                        at
                    }
                    None => {
                        self.paths.push(new);
                        self.paths.len() - 1
                    }
                }
            }
        };
        self.paths[at].used = self.recorded;
        at
    }
}

/// The level of contexts of a position.
fn level_of(pos: usize) -> usize {
    let doublings = (pos / FIRST_LEVEL).checked_ilog2().map_or(0, |log| log as usize + 1);
    doublings.min(LEVELS - 1)
}

/// The load of a step of so many sequences.
fn load_of(sequences: usize) -> usize {
    (sequences.max(1).ilog2() as usize).min(LOADS - 1)
}

/// Costs at one level of contexts. What was not measured there is taken from the nearest level where it was, scaled by the plain steps of
/// both.
#[derive(Clone, Copy)]
pub(crate) struct CostsAt<'a> {
    costs: &'a CostModel,
    level: usize,
    passes: [Option<Measured>; ROWS], // (rows - 1)
}

impl<'a> CostsAt<'a> {
    fn new(costs: &'a CostModel, level: usize) -> Self {
        let mut here = CostsAt { costs, level, passes: [None; ROWS] };
        for at in 0..ROWS {
            here.passes[at] = here.look(|level| costs.pass[level].get(at)?.measured(costs.recorded, costs.batch()));
        }
        here
    }

    /// The cost of one draft step of `path` over a plain step, measured or inferred.
    pub(crate) fn c(&self, path: &DraftPath) -> f64 {
        let plan = &path.plan;
        let layers = LAYER_SHARE * plan.cost_layers() as f64 / plan.n_layers() as f64;
        let inferred = match path.readout {
            Readout::Nothing | Readout::Head => 1.0 - LAYER_SHARE + layers,
            Readout::DraftVocab | Readout::ExitHead => SMALL_HEAD_SHARE + layers,
        };
        match self.draft(path).filter(|_| self.costs.recorded_pass()) {
            Some(measured) => {
                let plain = self.estimate(self.costs.batch());
                measured.against(inferred * plain) / plain
            }
            None => inferred,
        }
    }

    /// The cost of a pass that gives each sequence of a step m rows over one that gives it one row, measured or inferred; at least 1.
    pub(crate) fn b(&self, m: usize) -> f64 {
        let batch = self.costs.batch();
        (self.estimate(batch * m) / self.estimate(batch)).max(1.0)
    }

    /// The cost, over a plain step, of a verification in which `kept` rows of a sequence enter from states kept by `path` and `from_token`
    /// from their tokens.
    pub(crate) fn verify(&self, path: Option<&DraftPath>, kept: usize, from_token: usize) -> f64 {
        let rows = self.b(kept + from_token);
        let Some(path) = path.filter(|p| kept > 0 && p.plan.exact_prefix() > 0) else { return rows };
        let (plan, n) = (&path.plan, path.plan.n_layers() as f64);
        let inferred = if from_token > 0 {
            rows // the row from the token reads all layers
        } else {
            let share = match path.readout {
                // c = 1 - share * (1 - layers run / layers), which gives the layers' share of a plain step.
                Readout::Head => ((1.0 - self.c(path)) / (1.0 - plan.cost_layers() as f64 / n)).clamp(0.0, 1.0),
                _ => LAYER_SHARE,
            };
            rows * (1.0 - share * plan.exact_prefix() as f64 / n)
        };
        if self.costs.batch() > 1 || !self.costs.recorded_pass() {
            return inferred;
        }
        let Some(own) = self.costs.path_costs(path) else { return inferred };
        let kind = |level: usize, kept: usize| own.times[level].verify.get(kept)?.get(from_token);
        let measured = |kept: usize| {
            // Most kinds were never run at any length of context.
            (0..LEVELS).any(|level| kind(level, kept).is_some_and(|times| times.recorded > 0)).then_some(())?;
            self.look(|level| kind(level, kept)?.measured(self.costs.recorded, 1))
        };
        let plain = self.estimate(1);
        if let Some(measured) = measured(kept) {
            return measured.against(inferred * plain) / plain;
        }
        // One that was never run costs what those of about as many rows did, and its rows more or fewer.
        let nearest = (1..=MAX_DRAFT).flat_map(|d| [kept.checked_sub(d).filter(|k| *k > 0), Some(kept + d)]);
        let sure = |kept: usize| Some((kept, measured(kept).filter(|m| m.is_sure())?.seconds / plain));
        let found = nearest.flatten().find_map(sure);
        found.map_or(inferred, |(near, cost)| cost * rows / self.b(near + from_token))
    }

    fn pass(&self, m: usize) -> Option<Measured> {
        self.passes.get(m.checked_sub(1)?).copied().flatten()
    }

    fn draft(&self, path: &DraftPath) -> Option<Measured> {
        let own = self.costs.path_costs(path)?;
        let load = load_of(self.costs.batch());
        let nearest =
            (0..LOADS).map(|d| [load.checked_sub(d), Some(load + d)]).flat_map(|pair| pair.into_iter().flatten());
        nearest.filter(|load| *load < LOADS).find_map(|load| {
            self.look(|level| own.times[level].draft[load].measured(self.costs.recorded, self.costs.batch()))
        })
    }

    /// What `get` finds at this level, or at the nearest one.
    fn look(&self, get: impl Fn(usize) -> Option<Measured>) -> Option<Measured> {
        if let Some(measured) = get(self.level) {
            return Some(measured);
        }
        let plain = |level: usize| self.costs.pass[level].get(self.costs.batch() - 1)?.get();
        let nearest = (1..LEVELS).flat_map(|d| [self.level.checked_sub(d), Some(self.level + d)]);
        nearest.flatten().filter(|level| *level < LEVELS).find_map(|level| {
            let Measured { seconds, samples } = get(level)?;
            let scale = plain(self.level).zip(plain(level)).map_or(1.0, |(here, there)| here / there);
            Some(Measured { seconds: seconds * scale, samples })
        })
    }

    /// The cost of a pass of `m` rows: seconds if any pass was measured, else in units of a plain step.
    fn estimate(&self, m: usize) -> f64 {
        let prior = |m: usize| 1.0 + ROW_SHARE * (m as f64 - 1.0);
        let sure = |m: usize| self.pass(m).filter(|p| p.is_sure()).map(|p| (m, p.seconds));
        // Up to what a time may go that few samples tell, by the nearest pass of fewer rows that is sure.
        let known = |m: usize| {
            let measured = self.pass(m)?;
            let below = (1..m).rev().find_map(sure);
            Some((m, below.map_or(measured.seconds, |(a, seconds)| measured.against(seconds * prior(m) / prior(a)))))
        };
        if let Some((_, seconds)) = known(m) {
            return seconds;
        }
        let below = (1..m.min(ROWS + 1)).rev().find_map(known);
        let above = (m + 1..=ROWS).find_map(known);
        match (below, above) {
            (Some((a, at_a)), Some((b, at_b))) => at_a + (at_b - at_a) * (m - a) as f64 / (b - a) as f64,
            (Some((a, seconds)), None) | (None, Some((a, seconds))) => seconds * prior(m) / prior(a),
            (None, None) => prior(m),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: u32, enter: Enter, plan: &LayerPlan) -> Row {
        Row { seq: SeqId(seq), pos: 0, token: 0, enter, plan: plan.clone(), keep: false, readout: Readout::Head }
    }

    fn passes(costs: &mut CostModel, rows: usize, seconds: f64) {
        let full = LayerPlan::full(10);
        let rows: Vec<Row> = (0..rows).map(|_| row(0, Enter::Token, &full)).collect();
        costs.record(&rows, seconds);
    }

    #[test]
    fn one_slow_step_among_many_changes_nothing() {
        let mut costs = CostModel::new();
        for seconds in [1.0, 1.01, 50.0, 0.99, 1.0] {
            passes(&mut costs, 1, seconds);
        }
        assert_eq!(costs.plain(), Some(1.0));
    }

    #[test]
    fn one_slow_step_that_is_the_only_one_of_its_kind_is_believed_in_part() {
        let mut costs = CostModel::new();
        (0..10).for_each(|_| passes(&mut costs, 1, 1.0));
        passes(&mut costs, 2, 9.0);
        assert!((costs.b(2) - 1.06 * 1.3).abs() < 1e-12 && costs.b(3) < 1.06 * 1.06 * 1.3, "{}", costs.b(3));
        assert_eq!(costs.pass(2), Some(9.0), "what was measured is told");
        passes(&mut costs, 2, 9.0);
        passes(&mut costs, 2, 9.0);
        assert_eq!(costs.b(2), 9.0, "three say that it is so");
        (0..STALE).for_each(|_| passes(&mut costs, 1, 1.0));
        assert!((costs.b(2) - 1.06 * 1.3).abs() < 1e-12, "and that was so long ago");

        let path = DraftPath { plan: LayerPlan::exit(10, 1).expect("valid"), readout: Readout::Head };
        let (draft, verify) = (row(0, Enter::Token, &path.plan), row(0, Enter::Kept, &LayerPlan::full(10)));
        costs.record(&[draft], 5.0);
        costs.record(&[verify.clone(), verify], 7.0);
        assert!((costs.c(&path) - 0.28 * 1.3).abs() < 1e-12, "{}", costs.c(&path));
        assert!(costs.here().verify(Some(&path), 2, 0) < 2.0);
    }

    #[test]
    fn what_was_not_measured_is_inferred_from_what_was() {
        let mut costs = CostModel::new();
        assert!((costs.b(4) - (1.0 + 3.0 * ROW_SHARE)).abs() < 1e-12);
        passes(&mut costs, 1, 2.0);
        passes(&mut costs, 5, 3.0);
        assert_eq!((costs.b(5), costs.b(3)), (1.5, 1.25));
        assert!(costs.b(8) > 1.5);
        assert_eq!(costs.pass(3), None);
        passes(&mut costs, 2, 1.0); // a pass of two rows cannot be cheaper than one of one
        assert_eq!(costs.b(2), 1.0);
    }

    #[test]
    fn draft_and_verify_steps_are_told_apart() {
        let (full, exit) = (LayerPlan::full(10), LayerPlan::exit(10, 5).expect("valid"));
        let path = DraftPath { plan: exit.clone(), readout: Readout::Head };
        let mut costs = CostModel::new();
        assert_eq!(costs.draft(&path), None);
        assert!((costs.c(&path) - 0.6).abs() < 1e-12);
        assert!((costs.here().verify(Some(&path), 1, 0) - 0.6).abs() < 1e-12);
        passes(&mut costs, 1, 1.0);
        costs.record(&[row(0, Enter::Token, &exit)], 0.7);
        costs.record(&[row(0, Enter::Kept, &full), row(0, Enter::Kept, &full), row(0, Enter::Token, &full)], 1.2);
        assert_eq!(costs.draft(&path), Some(0.7));
        assert_eq!(costs.c(&path), 0.7);
        assert_eq!(costs.here().verify(Some(&path), 2, 1), 1.2);
        assert_eq!(costs.pass(3), None, "a verification from kept states is no pass of three rows");
        let mut prompt = row(0, Enter::Token, &full);
        prompt.readout = Readout::Nothing;
        costs.record(&[prompt, row(0, Enter::Token, &full)], 99.0);
        assert_eq!(costs.pass(2), None);
    }

    #[test]
    fn steps_after_a_prompt_are_not_timed() {
        let mut costs = CostModel::new();
        assert!(costs.plain_is_due(0));
        let full = LayerPlan::full(10);
        costs.record(&[Row { readout: Readout::Nothing, ..row(0, Enter::Token, &full) }], 9.0);
        for _ in 0..COLD {
            passes(&mut costs, 1, 2.0);
        }
        assert_eq!(costs.plain(), Some(2.0), "until there is something better");
        passes(&mut costs, 2, 1.1);
        assert_eq!(costs.plain(), None);
        for _ in 0..SURE {
            assert!(costs.plain_is_due(0) && costs.plain_is_due(3 * FIRST_LEVEL));
            passes(&mut costs, 1, 1.0);
        }
        assert!(!costs.plain_is_due(0) && costs.plain_is_due(3 * FIRST_LEVEL));
        assert_eq!(costs.plain(), Some(1.0));
        costs.record(&[Row { readout: Readout::Nothing, ..row(0, Enter::Token, &full) }], 9.0);
        for _ in 0..COLD {
            assert!(!costs.plain_is_due(3 * FIRST_LEVEL), "it would tell nothing");
            passes(&mut costs, 1, 2.0);
        }
        assert_eq!(costs.plain(), Some(1.0));
        (0..=STALE).for_each(|_| passes(&mut costs, 2, 1.1));
        assert!(costs.plain_is_due(0), "it was long ago");
        passes(&mut costs, 1, 1.5);
        assert_eq!(costs.plain(), Some(1.5), "and what it was then counts no more");
    }

    #[test]
    fn in_a_batch_a_row_more_for_everyone_is_priced() {
        let full = LayerPlan::full(4);
        let mut costs = CostModel::new();
        for _ in 0..100 {
            let four: Vec<Row> = (0..4).map(|s| row(s, Enter::Token, &full)).collect();
            costs.record(&four, 2.0);
            let eight: Vec<Row> = (0..8).map(|s| row(s / 2, Enter::Token, &full)).collect();
            costs.record(&eight, 3.0);
        }
        assert_eq!(costs.b(2), 1.5);
    }

    #[test]
    fn plans_are_forgotten_before_they_pile_up() {
        let path = |exit| DraftPath { plan: LayerPlan::exit(50, exit).expect("valid"), readout: Readout::Head };
        let mut costs = CostModel::new();
        for exit in 1..=40 {
            costs.record(&[row(0, Enter::Token, &LayerPlan::exit(50, exit).expect("valid"))], 1.0);
        }
        assert_eq!(costs.paths.len(), PATHS);
        assert_eq!(costs.draft(&path(40)), Some(1.0));
        assert_eq!(costs.draft(&path(1)), None);
    }

    #[test]
    fn contexts_have_costs_of_their_own_and_lend_them_to_their_neighbours() {
        let (full, exit) = (LayerPlan::full(10), LayerPlan::exit(10, 5).expect("valid"));
        let path = DraftPath { plan: exit.clone(), readout: Readout::Head };
        let mut costs = CostModel::new();
        let mut record = |plan: &LayerPlan, rows: usize, pos: usize, seconds: f64| {
            let row = Row { pos, ..row(0, Enter::Token, plan) };
            costs.record(&vec![row; rows], seconds);
        };
        record(&full, 1, 100, 1.0);
        record(&full, 4, 100, 1.2);
        record(&exit, 1, 100, 0.5);
        record(&full, 1, 5000, 2.0);
        record(&exit, 1, 5000, 1.4);
        assert_eq!((costs.at(10).c(&path), costs.at(6000).c(&path)), (0.5, 0.7));
        assert!((costs.at(6000).b(4) - 1.2).abs() < 1e-12, "taken over from where it was measured, scaled");
        assert_eq!(costs.at(700).c(&path), 0.5);
        assert_eq!(costs.plain(), Some(2.0));
    }
}
