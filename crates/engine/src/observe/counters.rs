//! Counters since the engine was opened, and gauges of its load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfspec_model::Row;
use selfspec_speculate::{MAX_DRAFT, RoundReason, RoundTrace};

use crate::observe::histogram::{Histogram, HistogramReading};
use crate::observe::step_kind::StepKind;

/// Times between tokens, in seconds.
const INTER_TOKEN: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.5, 10.0,
];

/// The counters, written by the engine thread and read by any thread.
#[derive(Debug)]
pub(crate) struct Counters {
    steps: AtomicU64,
    rows: AtomicU64,
    layer_rows: AtomicU64,
    step_nanoseconds: [AtomicU64; StepKind::ALL.len()],
    prompt_tokens: [AtomicU64; 2],
    cached_tokens: AtomicU64,
    generated_tokens: [AtomicU64; 2],
    inter_token: [Histogram; 2],
    drafts: AtomicU64,
    drafted: AtomicU64,
    accepted: [AtomicU64; MAX_DRAFT], // (place in the round)
    bypassed: [AtomicU64; RoundReason::LABELS.len()],
    panics: AtomicU64,
    preemptions: AtomicU64,
    running: AtomicU64,
    waiting: AtomicU64,
    pages: AtomicU64,
    pages_used: AtomicU64,
    pages_cached: AtomicU64,
}

/// Counters since the engine was opened, and gauges of its load. Arrays of two hold the number for
/// requests without speculation, and the number for those with it.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineCounters {
    /// Steps run.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Rows times layers computed: the measure that shows what verification reuses.
    pub layer_rows: u64,
    /// Seconds that steps took, by their kind, in the order of [`StepKind::ALL`].
    pub step_seconds: [f64; StepKind::ALL.len()],
    /// Tokens of the prompts of admitted requests.
    pub prompt_tokens: [u64; 2],
    /// Of all of them, tokens whose KV was in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated, also by requests that still run or have failed.
    pub generated_tokens: [u64; 2],
    /// Times between tokens. The tokens of a round share the time since the round before.
    pub inter_token: [HistogramReading; 2],
    /// Rounds with a draft.
    pub drafts: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Index i: drafts accepted that were the (i + 1)-th of their round.
    pub accepted: [u64; MAX_DRAFT],
    /// Rounds without a draft by their reason, in the order of [`RoundReason::LABELS`].
    pub bypassed: [u64; RoundReason::LABELS.len()],
    /// Steps that panicked.
    pub panics: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Requests that run.
    pub running: u64,
    /// Requests that are queued, preempted ones included.
    pub waiting: u64,
    /// KV pages in all.
    pub pages: u64,
    /// Of these, pages that hold something.
    pub pages_used: u64,
    /// Of the used ones, pages of the prefix cache, which are freed when others need them. A page
    /// that running sequences share counts for each of them, so this number may be too low then.
    pub pages_cached: u64,
}

/// Gauges of the engine's load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineLoad {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// All pages, used ones, and those of running sequences; `None` if the backend is broken.
    pub(crate) pages: Option<[usize; 3]>,
}

impl Default for Counters {
    fn default() -> Self {
        fn zeros<const N: usize>() -> [AtomicU64; N] {
            std::array::from_fn(|_| AtomicU64::new(0))
        }
        let zero = AtomicU64::default;
        Counters {
            steps: zero(),
            rows: zero(),
            layer_rows: zero(),
            step_nanoseconds: zeros(),
            prompt_tokens: zeros(),
            cached_tokens: zero(),
            generated_tokens: zeros(),
            inter_token: std::array::from_fn(|_| Histogram::new(INTER_TOKEN)),
            drafts: zero(),
            drafted: zero(),
            accepted: zeros(),
            bypassed: zeros(),
            panics: zero(),
            preemptions: zero(),
            running: zero(),
            waiting: zero(),
            pages: zero(),
            pages_used: zero(),
            pages_cached: zero(),
        }
    }
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    /// A step of these rows was run.
    pub(crate) fn step(&self, rows: &[Row], layer_rows: u64, took: Duration) {
        add(&self.steps, 1);
        add(&self.rows, rows.len());
        self.layer_rows.fetch_add(layer_rows, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.step_nanoseconds[StepKind::of(rows) as usize].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// A request was admitted.
    pub(crate) fn admitted(&self, speculates: bool, prompt: usize, cached: usize) {
        add(&self.prompt_tokens[usize::from(speculates)], prompt);
        add(&self.cached_tokens, cached);
    }

    /// A round has committed `tokens` tokens of a request, `after` the round before it.
    pub(crate) fn generated(&self, speculates: bool, tokens: usize, after: Option<Duration>) {
        add(&self.generated_tokens[usize::from(speculates)], tokens);
        if let Some(after) = after {
            self.inter_token[usize::from(speculates)].observe_each(after, tokens);
        }
    }

    /// A round has ended.
    pub(crate) fn round(&self, round: &RoundTrace) {
        if round.drafted == 0 {
            return add(&self.bypassed[round.reason.index()], 1);
        }
        add(&self.drafts, 1);
        add(&self.drafted, round.drafted);
        for place in self.accepted.iter().take(round.accepted) {
            add(place, 1);
        }
    }

    pub(crate) fn panicked(&self) {
        add(&self.panics, 1);
    }

    pub(crate) fn preempted(&self) {
        add(&self.preemptions, 1);
    }

    pub(crate) fn at_hand(&self, at_hand: EngineLoad) {
        let set = |gauge: &AtomicU64, n: usize| gauge.store(n as u64, Ordering::Relaxed);
        set(&self.running, at_hand.running);
        set(&self.waiting, at_hand.waiting);
        if let Some([all, used, running]) = at_hand.pages {
            set(&self.pages, all);
            set(&self.pages_used, used);
            set(&self.pages_cached, used.saturating_sub(running));
        }
    }

    pub(crate) fn read(&self) -> EngineCounters {
        EngineCounters {
            steps: get(&self.steps),
            rows: get(&self.rows),
            layer_rows: get(&self.layer_rows),
            step_seconds: self.step_nanoseconds.each_ref().map(|n| get(n) as f64 * 1e-9),
            prompt_tokens: self.prompt_tokens.each_ref().map(get),
            cached_tokens: get(&self.cached_tokens),
            generated_tokens: self.generated_tokens.each_ref().map(get),
            inter_token: self.inter_token.each_ref().map(Histogram::read),
            drafts: get(&self.drafts),
            drafted: get(&self.drafted),
            accepted: self.accepted.each_ref().map(get),
            bypassed: self.bypassed.each_ref().map(get),
            panics: get(&self.panics),
            preemptions: get(&self.preemptions),
            running: get(&self.running),
            waiting: get(&self.waiting),
            pages: get(&self.pages),
            pages_used: get(&self.pages_used),
            pages_cached: get(&self.pages_cached),
        }
    }
}
