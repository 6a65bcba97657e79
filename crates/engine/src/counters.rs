//! What the engine has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// Written by the engine's thread, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    steps: AtomicU64,
    rows: AtomicU64,
    layer_rows: AtomicU64,
    tokens: AtomicU64,
    panics: AtomicU64,
    preemptions: AtomicU64,
}

/// What the engine has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineCounters {
    /// Steps run.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Rows times layers computed: the measure that shows what verification reuses.
    pub layer_rows: u64,
    /// Tokens of finished requests.
    pub tokens: u64,
    /// Steps that panicked.
    pub panics: u64,
    /// Times that a request gave its pages to older ones, to be computed again later.
    pub preemptions: u64,
}

impl Counters {
    pub(crate) fn step(&self, rows: usize, layer_rows: u64) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.layer_rows.fetch_add(layer_rows, Ordering::Relaxed);
    }

    pub(crate) fn tokens(&self, tokens: usize) {
        self.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn preempted(&self) {
        self.preemptions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> EngineCounters {
        EngineCounters {
            steps: self.steps.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            layer_rows: self.layer_rows.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
            panics: self.panics.load(Ordering::Relaxed),
            preemptions: self.preemptions.load(Ordering::Relaxed),
        }
    }
}
