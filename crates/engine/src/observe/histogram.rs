//! Histograms of durations, which any thread may write and read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Durations counted in buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64], // seconds, ascending: upper ends of the buckets but the last, which has none
    buckets: Vec<AtomicU64>, // (bounds + 1)
    sum: AtomicU64,         // nanoseconds
}

/// The contents of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramReading {
    /// Upper ends of the buckets in seconds, ascending; the last bucket has none.
    pub bounds: &'static [f64],
    /// Number of durations in each bucket and those before it. The last counts all.
    ///
    /// Shape: (bounds + 1)
    pub cumulative: Vec<u64>,
    /// Their sum in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Buckets with these upper ends, in seconds and ascending, and one more.
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        self.observe_each(time, 1);
    }

    /// Counts `n` times that come to `total` together, each as their mean.
    pub fn observe_each(&self, total: Duration, n: usize) {
        if n == 0 {
            return;
        }
        let mean = total.as_secs_f64() / n as f64;
        let bucket = self.bounds.partition_point(|bound| *bound < mean);
        self.buckets[bucket].fetch_add(n as u64, Ordering::Relaxed);
        let nanoseconds = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Its contents.
    pub fn read(&self) -> HistogramReading {
        let mut all = 0;
        let cumulative = self.buckets.iter().map(|bucket| {
            all += bucket.load(Ordering::Relaxed);
            all
        });
        HistogramReading {
            bounds: self.bounds,
            cumulative: cumulative.collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 * 1e-9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_that_it_is_not_above() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for ms in [50, 100, 101, 5000] {
            histogram.observe(Duration::from_millis(ms));
        }
        histogram.observe_each(Duration::from_millis(600), 3);
        histogram.observe_each(Duration::from_millis(600), 0);
        let read = histogram.read();
        assert_eq!(read.cumulative, [2, 6, 7]);
        assert!((read.sum - 5.851).abs() < 1e-9, "{}", read.sum);
    }
}
