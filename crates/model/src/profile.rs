//! The time of a step by part of the forward pass.

use std::time::Instant;

/// A part of the forward pass. A step's time is the sum over its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassPart {
    /// Embeddings and kept states into the residual stream, rotary angles, bookkeeping between
    /// layers.
    Enter,
    /// The norms before the matrix products, and quantising what they read.
    Norm,
    /// The q, k and v projections.
    QueryKeyValue,
    /// Biases, head norms and rotary embedding.
    Heads,
    /// K and V into the cache.
    CacheWrite,
    /// Attention over the cache.
    Attention,
    /// Quantising attention's output, and its projection.
    AttentionOutput,
    /// The gate and up projections, the gated activation, and quantising it.
    Gate,
    /// The down projection.
    Down,
    /// Sums into the residual stream, post-norms included.
    Add,
    /// The head: one logit for each token of the vocabulary.
    Head,
}

impl PassPart {
    /// All parts, in the order of a step.
    pub const ALL: [PassPart; 11] = [
        PassPart::Enter,
        PassPart::Norm,
        PassPart::QueryKeyValue,
        PassPart::Heads,
        PassPart::CacheWrite,
        PassPart::Attention,
        PassPart::AttentionOutput,
        PassPart::Gate,
        PassPart::Down,
        PassPart::Add,
        PassPart::Head,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PassPart::Enter => "enter",
            PassPart::Norm => "norm",
            PassPart::QueryKeyValue => "qkv",
            PassPart::Heads => "heads",
            PassPart::CacheWrite => "kv write",
            PassPart::Attention => "attention",
            PassPart::AttentionOutput => "attention output",
            PassPart::Gate => "gate and up",
            PassPart::Down => "down",
            PassPart::Add => "add",
            PassPart::Head => "head",
        }
    }
}

/// Seconds by part, in the order of [`PassPart::ALL`].
pub type PartSeconds = [f64; PassPart::ALL.len()];

/// Times the parts of a step while it is on. Off, it reads no clock.
#[derive(Debug, Default)]
pub struct Profiler {
    last: Option<Instant>, // when the part before ended; `None`: off
    seconds: PartSeconds,
}

impl Profiler {
    /// Turns timing on or off, and forgets what was timed.
    pub fn set_on(&mut self, on: bool) {
        self.seconds = PartSeconds::default();
        self.last = on.then(Instant::now);
    }

    /// The seconds since it was turned on or last asked, by part; starts anew.
    pub fn take(&mut self) -> PartSeconds {
        std::mem::take(&mut self.seconds)
    }

    /// A step begins: what came before it belongs to no part.
    pub(crate) fn begin(&mut self) {
        if let Some(last) = &mut self.last {
            *last = Instant::now();
        }
    }

    /// The time since the last lap was spent on `part`.
    pub(crate) fn lap(&mut self, part: PassPart) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            self.seconds[part as usize] += now.duration_since(*last).as_secs_f64();
            *last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_while_on_and_are_nothing_while_off() {
        assert!(PassPart::ALL.iter().enumerate().all(|(i, part)| *part as usize == i));
        let mut profiler = Profiler::default();
        profiler.begin();
        profiler.lap(PassPart::Head);
        assert_eq!(profiler.take(), PartSeconds::default());
        profiler.set_on(true);
        let started = Instant::now();
        profiler.begin();
        std::thread::sleep(std::time::Duration::from_millis(1));
        profiler.lap(PassPart::Norm);
        profiler.lap(PassPart::Head);
        profiler.lap(PassPart::Norm);
        let whole = started.elapsed().as_secs_f64();
        let seconds = profiler.take();
        assert!(seconds[PassPart::Norm as usize] >= 1e-3 && seconds.iter().sum::<f64>() <= whole);
        assert_eq!(profiler.take(), PartSeconds::default());
    }
}
