//! When requests arrive: a Poisson process, the same for the same seed.

use crate::statistics::SplitMix64;

/// Seconds from the first request to each, at `rate` requests a second on average; none if the rate
/// is infinite. Shape: (request).
pub(super) fn arrivals(rate: f64, requests: usize, seed: u64) -> Option<Vec<f64>> {
    if rate.is_infinite() {
        return None;
    }
    let mut random = SplitMix64::new(seed);
    let mut at = 0.0;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        times.push(at);
        // The times between the events of a Poisson process are exponential.
        at += -random.uniform().ln() / rate;
    }
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let first = arrivals(3.0, 50, 1);
        assert_eq!(first, arrivals(3.0, 50, 1));
        assert_ne!(first, arrivals(3.0, 50, 2));
        assert_eq!(arrivals(f64::INFINITY, 50, 1), None);
    }

    #[test]
    fn gaps_are_exponential_with_the_rates_mean() {
        let times = arrivals(4.0, 20_001, 7).expect("a rate");
        assert_eq!(times[0], 0.0);
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap >= 0.0 && gap.is_finite()));
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.25).abs() < 0.01, "{mean}");
        // An exponential's deviation is its mean, and a share of 1/e lies above it.
        assert!((variance.sqrt() - 0.25).abs() < 0.01, "{variance}");
        let above = gaps.iter().filter(|gap| **gap > 0.25).count() as f64 / gaps.len() as f64;
        assert!((above - (-1.0f64).exp()).abs() < 0.02, "{above}");
    }
}
