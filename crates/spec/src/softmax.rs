//! The peak of a row of logits, and sums of exponentials over it.
//!
//! The exponential is written here, for two reasons: the loop over a vocabulary vectorises, and every platform gives the same bits.

use selfspec_model::TokenId;

use crate::error::LogitsFault;

/// Tokens that are summed together; draws search block by block.
pub(crate) const BLOCK: usize = 64;
const LANES: usize = 16;

/// The highest logit of a row, and its token: the lowest id that has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    pub(crate) token: TokenId,
    pub(crate) logit: f32,
}

impl Peak {
    /// # Errors
    /// A logit that is NaN or plus infinity, or none above minus infinity.
    pub(crate) fn of(row: &[f32]) -> Result<Peak, LogitsFault> {
        let mut highest = [f32::NEG_INFINITY; LANES];
        let mut largest = [0i32; LANES]; // of the bits without the sign: NaNs lie above infinity
        let (chunks, rest) = row.as_chunks::<LANES>();
        for chunk in chunks {
            for ((high, bits), l) in highest.iter_mut().zip(&mut largest).zip(chunk) {
                *high = if *l > *high { *l } else { *high };
                let size = (l.to_bits() & 0x7fff_ffff) as i32;
                *bits = if size > *bits { size } else { *bits };
            }
        }
        let logit = highest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
        let infinite = f32::INFINITY.to_bits() as i32;
        if largest.iter().any(|bits| *bits > infinite) || rest.iter().any(|l| l.is_nan()) {
            return Err(LogitsFault::NotANumber);
        }
        if logit == f32::INFINITY {
            return Err(LogitsFault::Infinite);
        }
        if logit == f32::NEG_INFINITY {
            return Err(LogitsFault::NothingPossible);
        }
        let token = row.iter().position(|l| *l == logit).expect("the highest logit is one of the row");
        Ok(Peak { token: token as TokenId, logit })
    }
}

/// e^x for x <= 0, within 2 units in the last place; 0 below -87 and for minus infinity.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4; // few bits, so that n * LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x > -87.0 { x } else { -87.0 };
    let shifted = bounded * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = bounded - n * LN2_HIGH - n * LN2_LOW; // |r| <= ln 2 / 2
    // Taylor to the 7th power: what is left is below r^8 / 8!, under 1e-8.
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let power = f32::from_bits((shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127)) << 23);
    if x > -87.0 { p * power } else { 0.0 }
}

/// Sum of a block in a fixed order.
#[inline(always)]
fn block_sum(block: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += term(*v);
        }
    }
    let tail: f32 = rest.iter().map(|v| term(*v)).sum();
    f64::from(sums.iter().sum::<f32>() + tail)
}

/// The sum over a row of `exp((l - peak) * scale)`: at least 1, since the peak is in it.
pub(crate) fn sum_exp(row: &[f32], peak: f32, scale: f32) -> f64 {
    row.chunks(BLOCK).map(|block| block_sum(block, |l| exp((l - peak) * scale))).sum()
}

/// Writes `exp((l - peak) * scale)` for a row to `weights`, the sums of its blocks to `blocks`, and returns the whole sum.
pub(crate) fn weigh(row: &[f32], peak: f32, scale: f32, weights: &mut Vec<f32>, blocks: &mut Vec<f64>) -> f64 {
    weights.clear();
    weights.extend(row.iter().map(|l| exp((l - peak) * scale)));
    sum_blocks(weights, blocks)
}

/// Writes the sums of the blocks of `weights` to `blocks`, and returns the whole sum.
pub(crate) fn sum_blocks(weights: &[f32], blocks: &mut Vec<f64>) -> f64 {
    blocks.clear();
    blocks.extend(weights.chunks(BLOCK).map(|block| block_sum(block, |w| w)));
    blocks.iter().sum()
}

/// ln of the sum of exponentials of a row: subtract it from a logit to get a log-probability.
pub(crate) fn log_sum_exp(row: &[f32], peak: f32) -> f64 {
    f64::from(peak) + sum_exp(row, peak, 1.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_library() {
        let mut x = 0.0f32;
        while x > -86.5 {
            let (ours, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / exact - 1.0).abs() < 2.5e-7, "exp({x}) = {ours}, expected {exact}");
            x -= 0.0137;
        }
        assert_eq!((exp(0.0), exp(-200.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
    }

    #[test]
    fn the_peak_is_the_lowest_id_of_the_highest_logit() {
        let mut row = vec![-1.0f32; 100];
        row[63] = 2.0;
        row[17] = 2.0;
        assert_eq!(Peak::of(&row), Ok(Peak { token: 17, logit: 2.0 }));
        row[99] = 3.0;
        assert_eq!(Peak::of(&row), Ok(Peak { token: 99, logit: 3.0 }));
    }

    #[test]
    fn rows_that_cannot_be_sampled_are_named() {
        for at in [0, 40, 99] {
            let mut row = vec![0.0f32; 100];
            row[at] = f32::NAN;
            assert_eq!(Peak::of(&row), Err(LogitsFault::NotANumber));
            row[at] = f32::INFINITY;
            assert_eq!(Peak::of(&row), Err(LogitsFault::Infinite));
        }
        assert_eq!(Peak::of(&[f32::NEG_INFINITY; 20]), Err(LogitsFault::NothingPossible));
        assert_eq!(Peak::of(&[]), Err(LogitsFault::NothingPossible));
    }
}
