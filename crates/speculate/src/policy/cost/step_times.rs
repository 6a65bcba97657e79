//! The times of one kind of step.
//!
//! A kind of step costs the median of its latest times, so that one step that lost its core to
//! another process changes nothing. Noise only ever adds to a time, so a time with few or old
//! samples is only partly trusted: it counts up to a bound above its inferred value. Otherwise one
//! such step would keep a drafter from ever being measured again.

/// Latest times that are remembered.
const REMEMBERED: usize = 9;
/// Samples from which a time is trusted as it is.
pub(crate) const ENOUGH_SAMPLES: usize = 3;
/// How far above its inferred value each sample before that lets a time count, as a share.
const TRUST_PER_SAMPLE: f64 = 0.3;
/// Decoding steps after which the samples of a time count half, and after which a new one replaces
/// them.
pub(crate) const STALE_AFTER: u64 = 256;

/// The latest times of one kind of step, and their median.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepTimes {
    seconds: [f64; REMEMBERED],
    pub(crate) recorded: usize, // times in all
    median: f64,                // seconds
    pub(crate) latest: u64,     // decoding step of the latest time
}

impl StepTimes {
    /// Records a step that took `seconds`, the decoding step number `step`.
    pub(crate) fn record(&mut self, seconds: f64, step: u64) {
        if step - self.latest > STALE_AFTER {
            self.recorded = 0; // load and context have changed since
        }
        self.latest = step;
        self.seconds[self.recorded % REMEMBERED] = seconds;
        self.recorded += 1;
        let n = self.recorded.min(REMEMBERED);
        let mut sorted = self.seconds;
        sorted[..n].sort_unstable_by(f64::total_cmp);
        self.median = sorted[(n - 1) / 2];
    }

    /// The median in seconds; `None` until a time is recorded.
    pub(crate) fn median(&self) -> Option<f64> {
        (self.recorded > 0).then_some(self.median)
    }

    /// The median, and the samples that it has at decoding step `now`. In a batch every time is
    /// trusted: steps there are of so many kinds that none is timed often, and each try costs all
    /// sequences a round.
    pub(crate) fn measured(&self, now: u64, batch: usize) -> Option<MeasuredTime> {
        let halvings = ((now - self.latest) / STALE_AFTER).min(8) as usize;
        let samples = if batch == 1 { self.recorded.min(REMEMBERED) >> halvings } else { ENOUGH_SAMPLES };
        self.median().map(|seconds| MeasuredTime { seconds, samples })
    }
}

/// A measured time, and how many samples it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredTime {
    pub(crate) seconds: f64,
    pub(crate) samples: usize,
}

impl MeasuredTime {
    /// Whether the time is trusted as it is.
    pub(crate) fn is_trusted(self) -> bool {
        self.samples >= ENOUGH_SAMPLES
    }

    /// The time in seconds, at most its bound above `inferred`, its value if it had not been
    /// measured.
    pub(crate) fn bounded_by(self, inferred: f64) -> f64 {
        let bound = match self.is_trusted() {
            true => f64::INFINITY,
            false => inferred * (1.0 + TRUST_PER_SAMPLE * self.samples as f64),
        };
        self.seconds.min(bound)
    }
}
