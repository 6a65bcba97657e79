//! Confidence intervals by the bootstrap (Efron 1979), percentile method.
//!
//! Draw as many samples as there are, with replacement, many times over. The figure of each draw
//! might as well have been measured: 2.5% of them lie below the interval and 2.5% above.

use serde::Serialize;

use super::random::SplitMix64;

/// A figure with its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// The figure, as measured.
    pub value: f64,
    /// 2.5% of the draws lie below.
    pub low: f64,
    /// 2.5% of the draws lie above.
    pub high: f64,
}

impl ConfidenceInterval {
    /// The interval of a figure from its value in each draw; draws without a value are left out.
    /// None without a value or without draws.
    pub fn of_draws(value: Option<f64>, draws: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let value = value?;
        let mut draws: Vec<f64> = draws.flatten().collect();
        draws.sort_unstable_by(f64::total_cmp);
        let last = draws.len().checked_sub(1)?;
        let at = |share: f64| draws[(share * last as f64).round() as usize];
        Some(ConfidenceInterval { value, low: at(0.025), high: at(0.975) })
    }
}

/// One draw of `n` samples with replacement: how often each sample was drawn. Shape of the result:
/// (sample).
pub fn resample(random: &mut SplitMix64, n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n];
    for _ in 0..n {
        counts[random.below(n)] += 1.0;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors_to_each_side() {
        let mut random = SplitMix64::new(7);
        let sample: Vec<f64> = (0..400).map(|_| random.next_u64() as f64 / u64::MAX as f64).collect();
        let mean = sample.iter().sum::<f64>() / 400.0;
        let draws: Vec<Option<f64>> = (0..2000)
            .map(|_| {
                let counts = resample(&mut random, 400);
                Some(counts.iter().zip(&sample).map(|(n, x)| n * x).sum::<f64>() / 400.0)
            })
            .collect();
        let found = ConfidenceInterval::of_draws(Some(mean), draws.into_iter()).expect("a figure");
        let error = (1.0f64 / 12.0 / 400.0).sqrt();
        assert!((found.high - mean - 1.96 * error).abs() < 0.15 * error * 2.0, "{found:?}");
        assert!((mean - found.low - 1.96 * error).abs() < 0.15 * error * 2.0, "{found:?}");
    }

    #[test]
    fn without_a_value_or_draws_there_is_no_interval() {
        assert_eq!(ConfidenceInterval::of_draws(None, [Some(1.0)].into_iter()), None);
        assert_eq!(ConfidenceInterval::of_draws(Some(1.0), [None].into_iter()), None);
    }
}
