//! When requests arrive: a Poisson process, the same for the same seed.

/// Seconds from the first request to each, at `rate` requests a second on average; none where the rate is endless.
pub(super) fn arrivals(rate: f64, requests: usize, seed: u64) -> Option<Vec<f64>> {
    if rate.is_infinite() {
        return None;
    }
    let mut state = seed;
    let mut at = 0.0;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        times.push(at);
        // The times between the events of a Poisson process are exponential.
        at += -uniform(&mut state).ln() / rate;
    }
    Some(times)
}

/// A number above 0, at most 1, by SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    ((z >> 11) + 1) as f64 / (1u64 << 53) as f64
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
