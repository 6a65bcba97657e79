//! Costs of passes: the numbers behind a speed-up, measured on a backend that does nothing else.
//!
//! Every figure is the median of repetitions. The repetitions of all figures take turns: a machine
//! that slows down for a while slows all of them, and their ratios stay.

use std::time::Instant;

use selfspec_engine::{Engine, EngineError, believed_seconds};
use selfspec_kernels::Team;
use selfspec_model::{
    Backend, BackendError, Enter, LayerPlan, PartSeconds, Profiler, Readout, Row, SeqId, StepOutput, TokenId,
};
use selfspec_speculate::{CostModel, DraftPath};

use crate::statistics::median;

/// Most memory that the bandwidth measurement takes; caches are smaller.
const MOST_BANDWIDTH_BYTES: usize = 1 << 30;

/// What to measure.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// Committed positions before the measured rows.
    pub context: usize,
    /// Row counts m of the cost curve; each row's logits are computed.
    pub rows: Vec<usize>,
    /// Ways to draft whose step is measured.
    pub paths: Vec<DraftPath>,
    /// Repetitions of each measurement.
    pub repetitions: usize,
    /// Prompt rows of the prefill measurement; 0: no such measurement.
    pub prefill: usize,
    /// Prompt rows in one step of it.
    pub prefill_chunk: usize,
    /// Whether the passes are timed by part as well, where the backend can.
    pub profile: bool,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        MeasureOptions {
            context: 256,
            rows: (1..=16).collect(),
            paths: Vec::new(),
            repetitions: 15,
            prefill: 512,
            prefill_chunk: 256,
            profile: false,
        }
    }
}

/// What passes cost, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurements {
    /// Committed positions before the measured rows.
    pub context: usize,
    /// (m, seconds of a full pass over m rows with logits of all of them), in the order asked for.
    pub passes: Vec<(usize, f64)>,
    /// (path, seconds of one draft step: one row with logits, hidden state kept), in the order
    /// asked for.
    pub drafts: Vec<(DraftPath, f64)>,
    /// (path, c of the engine's cost model after these steps), in the order asked for. The policy
    /// goes by this c.
    pub believed: Vec<(DraftPath, f64)>,
    /// (m, seconds of a pass over m rows by part), in the order asked for; empty unless asked for.
    pub profile: Vec<(usize, PartSeconds)>,
    /// (path, seconds of its draft step by part), in the order asked for; empty unless asked for.
    pub draft_profile: Vec<(DraftPath, PartSeconds)>,
    /// Prompt rows a second.
    pub prefill_rows_s: Option<f64>,
    /// Bytes a second that the engine's threads read from memory, over as many bytes as a pass
    /// streams.
    pub read_bytes_s: Option<f64>,
    /// Bytes that a pass of one row streams: weights, and K and V of the context.
    pub pass_bytes: Option<u64>,
}

impl Measurements {
    /// Seconds of a pass over one row, which is a plain decoding step.
    pub fn plain_s(&self) -> Option<f64> {
        self.pass_s(1)
    }

    /// Seconds of a pass over m rows.
    pub fn pass_s(&self, m: usize) -> Option<f64> {
        self.passes.iter().find(|(rows, _)| *rows == m).map(|(_, seconds)| *seconds)
    }

    /// b(m): cost of a pass over m rows over that of one.
    pub fn b(&self, m: usize) -> Option<f64> {
        Some(self.pass_s(m)? / self.plain_s()?)
    }

    /// c: cost of a draft step of `path` over that of a plain step.
    pub fn c(&self, path: &DraftPath) -> Option<f64> {
        let (_, seconds) = self.drafts.iter().find(|(p, _)| p == path)?;
        Some(seconds / self.plain_s()?)
    }

    /// c of `path` in the engine's cost model after the measured steps.
    pub fn believed_c(&self, path: &DraftPath) -> Option<f64> {
        self.believed.iter().find(|(p, _)| p == path).map(|(_, c)| *c)
    }

    /// The share of the bandwidth bound that a plain step reaches: 1 if it streams its bytes as
    /// fast as memory gives them.
    pub fn bound_share(&self) -> Option<f64> {
        Some(self.pass_bytes? as f64 / self.read_bytes_s? / self.plain_s()?)
    }
}

/// Seconds of passes and draft steps.
#[derive(Debug, Clone, PartialEq)]
pub struct PassTimes {
    /// As [`Measurements::passes`].
    pub passes: Vec<(usize, f64)>,
    /// As [`Measurements::drafts`].
    pub drafts: Vec<(DraftPath, f64)>,
    /// As [`Measurements::profile`].
    pub profile: Vec<(usize, PartSeconds)>,
    /// As [`Measurements::draft_profile`].
    pub draft_profile: Vec<(DraftPath, PartSeconds)>,
}

/// Measures passes over `options.rows` rows and draft steps of `options.paths`, after
/// `options.context` positions.
///
/// # Errors
/// The backend refuses a row: the context or the cache is too small for the positions, or a plan is
/// of another depth.
pub fn pass_times(backend: &mut dyn Backend, options: &MeasureOptions) -> Result<PassTimes, BackendError> {
    watched_pass_times(backend, options, &mut |_, _| {})
}

/// The same. `watch` gets the rows and the seconds of every step that counts.
fn watched_pass_times(
    backend: &mut dyn Backend,
    options: &MeasureOptions,
    watch: &mut dyn FnMut(&[Row], f64),
) -> Result<PassTimes, BackendError> {
    let rows = options.rows.iter().copied().max().unwrap_or(0).max(1);
    check_room(backend, options.context.saturating_add(rows))?;
    let seq = backend.create();
    if let Some(profiler) = backend.profiler() {
        profiler.set_on(options.profile);
    }
    let times = pass_times_in(backend, seq, options, watch);
    if let Some(profiler) = backend.profiler() {
        profiler.set_on(false);
    }
    backend.free(seq);
    times
}

fn pass_times_in(
    backend: &mut dyn Backend,
    seq: SeqId,
    options: &MeasureOptions,
    watch: &mut dyn FnMut(&[Row], f64),
) -> Result<PassTimes, BackendError> {
    let mut out = StepOutput::default();
    fill(backend, seq, options.context, options.prefill_chunk, &mut out)?;
    let full = LayerPlan::full(backend.n_layers());
    let head = Readout::Head;
    let passes = options.rows.iter().map(|m| rows(backend, seq, options.context..options.context + m, &full, head));
    let mut steps: Vec<Vec<Row>> = passes.collect();
    for path in &options.paths {
        let mut draft = rows(backend, seq, options.context..options.context + 1, &path.plan, path.readout);
        draft.iter_mut().for_each(|row| row.keep = !path.plan.is_full() && path.plan.exact_prefix() > 0);
        steps.push(draft);
    }
    let mut seconds = vec![Vec::with_capacity(options.repetitions); steps.len()];
    let mut parts: Vec<Vec<PartSeconds>> = vec![Vec::new(); steps.len()];
    // One repetition more than asked for: the first one touches memory for the first time.
    for repetition in 0..=options.repetitions {
        for ((step, seconds), parts) in steps.iter().zip(&mut seconds).zip(&mut parts) {
            if step.is_empty() {
                continue;
            }
            if let Some(profiler) = backend.profiler() {
                profiler.take();
            }
            let started = Instant::now();
            backend.step(step, &mut out)?;
            let took = started.elapsed().as_secs_f64();
            if repetition > 0 || options.repetitions == 0 {
                seconds.push(took);
                watch(step, took);
                parts.extend(backend.profiler().filter(|_| options.profile).map(Profiler::take));
            }
            backend.set_len(seq, options.context)?;
        }
    }
    let mut medians = seconds.iter_mut().map(|s| median(s));
    let passes = options.rows.iter().copied().zip(medians.by_ref()).collect();
    let mut by_part = parts.iter().map(|parts| Some(median_by_part(parts)).filter(|_| !parts.is_empty()));
    let profile = options.rows.iter().zip(by_part.by_ref()).filter_map(|(m, parts)| Some((*m, parts?))).collect();
    let draft_profile = options.paths.iter().zip(by_part).filter_map(|(path, parts)| Some((path.clone(), parts?)));
    let draft_profile = draft_profile.collect();
    Ok(PassTimes { passes, drafts: options.paths.iter().cloned().zip(medians).collect(), profile, draft_profile })
}

/// Measures how many rows a second a prompt of `prompt` rows is read at, `chunk` rows a step.
///
/// # Errors
/// The context or the cache is too small for the prompt.
pub fn prefill_rows_s(
    backend: &mut dyn Backend,
    prompt: usize,
    chunk: usize,
    repetitions: usize,
) -> Result<f64, BackendError> {
    check_room(backend, prompt)?;
    let mut out = StepOutput::default();
    let mut seconds = Vec::with_capacity(repetitions);
    for _ in 0..repetitions.max(1) {
        let seq = backend.create();
        let started = Instant::now();
        let filled = fill(backend, seq, prompt, chunk, &mut out);
        seconds.push(started.elapsed().as_secs_f64());
        backend.free(seq);
        filled?;
    }
    Ok(prompt as f64 / median(&mut seconds))
}

/// Whether a sequence of so many positions fits, before time is spent on its beginning.
fn check_room(backend: &dyn Backend, positions: usize) -> Result<(), BackendError> {
    if positions > backend.context() {
        return Err(BackendError::BeyondContext { pos: positions - 1, context: backend.context() });
    }
    let (wanted, free) = (positions.div_ceil(backend.page_positions()), backend.free_pages());
    if wanted > free { Err(BackendError::KvFull { wanted: wanted - free, free }) } else { Ok(()) }
}

/// Commits the first `len` positions of `seq` as a prompt: in chunks, with logits of the last row.
fn fill(
    backend: &mut dyn Backend,
    seq: SeqId,
    len: usize,
    chunk: usize,
    out: &mut StepOutput,
) -> Result<(), BackendError> {
    let full = LayerPlan::full(backend.n_layers());
    let mut from = 0;
    while from < len {
        let to = len.min(from + chunk.max(1));
        let mut chunk = rows(backend, seq, from..to, &full, Readout::Nothing);
        if let Some(last) = chunk.last_mut().filter(|_| to == len) {
            last.readout = Readout::Head;
        }
        backend.step(&chunk, out)?;
        from = to;
    }
    backend.set_len(seq, len)
}

fn rows(
    backend: &dyn Backend,
    seq: SeqId,
    positions: std::ops::Range<usize>,
    plan: &LayerPlan,
    readout: Readout,
) -> Vec<Row> {
    // The time does not depend on the tokens, but equal ones would read one row of the embedding
    // from the cache.
    let token = |pos: usize| (pos.wrapping_mul(7919) % backend.vocab().max(1)) as TokenId;
    positions
        .map(|pos| Row { seq, pos, token: token(pos), enter: Enter::Token, plan: plan.clone(), keep: false, readout })
        .collect()
}

fn median_by_part(steps: &[PartSeconds]) -> PartSeconds {
    std::array::from_fn(|part| median(&mut steps.iter().map(|seconds| seconds[part]).collect::<Vec<_>>()))
}

/// Measures on the engine's own thread and backend, between requests. Read bandwidth is measured
/// with as many threads and over as many bytes as a pass streams, before and after the passes; the
/// larger figure counts.
///
/// # Errors
/// [`EngineError::Backend`] when context or cache are too small for what is asked; those of
/// [`Engine::exclusive`].
pub fn measure(engine: &Engine, options: &MeasureOptions) -> Result<Measurements, EngineError> {
    let full = LayerPlan::full(engine.n_layers());
    let pass_bytes = engine.loaded().map(|loaded| loaded.pass_bytes(&full, engine.kv_type(), options.context));
    let (threads, options, fault) = (engine.threads(), options.clone(), engine.fault());
    engine.exclusive(move |backend| {
        check_room(backend, options.context.saturating_add(1))?;
        let team = Team::new(threads);
        let bandwidth = || {
            pass_bytes.map(|bytes| {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(MOST_BANDWIDTH_BYTES);
                selfspec_kernels::read_bandwidth(&team, bytes)
            })
        };
        let before = bandwidth();
        let mut costs = CostModel::new();
        let mut watch = |rows: &[Row], seconds| costs.record(rows, believed_seconds(fault, rows, seconds));
        let times = watched_pass_times(backend, &options, &mut watch)?;
        let after = bandwidth();
        let prefill_rows_s = match options.prefill {
            0 => None,
            prompt => Some(prefill_rows_s(backend, prompt, options.prefill_chunk, options.repetitions.min(3))?),
        };
        Ok(Measurements {
            context: options.context,
            passes: times.passes,
            believed: options.paths.iter().map(|path| (path.clone(), costs.c(path))).collect(),
            drafts: times.drafts,
            profile: times.profile,
            draft_profile: times.draft_profile,
            prefill_rows_s,
            read_bytes_s: before.zip(after).map(|(before, after)| before.max(after)),
            pass_bytes,
        })
    })?
}
