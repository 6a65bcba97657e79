//! How sure a figure is: the bootstrap (Efron 1979), over requests.
//!
//! As many requests as there are in an arm are drawn from it, with replacement, many times over; the figure of each draw is one that might as well have been
//! measured. Requests are drawn and not tokens, because the tokens of one request are alike. 2.5% of the figures lie below the interval and 2.5% above (the
//! percentile method). The draws are the same each time.

use super::arm::{Arm, FIGURES};

/// Draws, where the record is no longer than they can be run through in some seconds.
pub(super) const DRAWS: usize = 1000;
const FEWEST_DRAWS: usize = 200;
/// Times that all draws may look at together.
const WORK: usize = 1_000_000_000;
/// Where the generator begins.
pub(super) const SEED: u64 = 1;

/// A figure, and the interval that it lies in with 95% confidence.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Sure {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The figures of both arms, and the second's over the first's.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) arms: [[Option<Sure>; FIGURES.len()]; 2],
    pub(super) ratios: [Option<Sure>; FIGURES.len()],
    pub(super) draws: usize,
}

/// The figures of two arms with their intervals.
pub(super) fn compare(arms: &[Arm; 2]) -> Figures {
    let size = arms[0].size() + arms[1].size();
    let draws = (WORK / size.max(1)).clamp(FEWEST_DRAWS, DRAWS);
    let once = arms.each_ref().map(|arm| arm.figures(&vec![1.0; arm.requests]));
    let mut drawn: [Vec<[Option<f64>; FIGURES.len()]>; 2] = [Vec::new(), Vec::new()];
    let mut random = SEED;
    for _ in 0..draws {
        for (arm, drawn) in arms.iter().zip(&mut drawn) {
            let mut counts = vec![0.0; arm.requests];
            for _ in 0..arm.requests {
                counts[((u128::from(next(&mut random)) * arm.requests as u128) >> 64) as usize] += 1.0;
            }
            drawn.push(arm.figures(&counts));
        }
    }
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
    let of_arm = |arm: usize| std::array::from_fn(|i| sure(once[arm][i], drawn[arm].iter().map(|figures| figures[i])));
    let ratio = |i: usize| {
        let pairs = drawn[1].iter().zip(&drawn[0]).map(|(second, first)| over(second[i], first[i]));
        sure(over(once[1][i], once[0][i]), pairs)
    };
    Figures { arms: [of_arm(0), of_arm(1)], ratios: std::array::from_fn(ratio), draws }
}

/// A figure with the interval of what was drawn.
fn sure(value: Option<f64>, drawn: impl Iterator<Item = Option<f64>>) -> Option<Sure> {
    let value = value?;
    let mut drawn: Vec<f64> = drawn.flatten().collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let last = drawn.len().checked_sub(1)?;
    let at = |share: f64| drawn[(share * last as f64).round() as usize];
    Some(Sure { value, low: at(0.025), high: at(0.975) })
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors_to_each_side() {
        let mut random = 7;
        let sample: Vec<f64> = (0..400).map(|_| next(&mut random) as f64 / u64::MAX as f64).collect();
        let draw = |_| {
            let sum: f64 = (0..400).map(|_| sample[(next(&mut random) % 400) as usize]).sum();
            Some(sum / 400.0)
        };
        let mean = sample.iter().sum::<f64>() / 400.0;
        let found = sure(Some(mean), (0..2000).map(draw).collect::<Vec<_>>().into_iter()).expect("a figure");
        let error = (1.0f64 / 12.0 / 400.0).sqrt();
        assert!((found.high - mean - 1.96 * error).abs() < 0.15 * error * 2.0, "{found:?}");
        assert!((mean - found.low - 1.96 * error).abs() < 0.15 * error * 2.0, "{found:?}");
    }
}
