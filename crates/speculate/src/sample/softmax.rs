//! The peak of a row of logits, and sums of exponentials over it.
//!
//! The exponential is written here for two reasons: the loop over a vocabulary vectorises, and
//! every platform gives the same bits. The loops are compiled once more for processors with AVX2 or
//! AVX-512 (`wide.rs`), from the same plain operations: wider, but not rounded in another way.

use crate::sample::wide::wide;
use pulp::NullaryFnOnce;
use selfspec_model::{LogitsError, TokenId};

/// Tokens summed together. Draws search block by block.
pub(crate) const BLOCK: usize = 64;
const LANES: usize = 16;

/// The highest logit of a row, and the lowest index that has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PeakLogit {
    pub(crate) token: TokenId,
    pub(crate) logit: f32,
}

impl PeakLogit {
    /// # Errors
    /// A logit that is NaN or plus infinity, or none above minus infinity.
    pub(crate) fn of(row: &[f32]) -> Result<PeakLogit, LogitsError> {
        let (_, rest) = row.as_chunks::<LANES>();
        let (highest, largest) = wide(RowExtremes(row));
        let logit = highest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
        let infinite = f32::INFINITY.to_bits() as i32;
        if largest.iter().any(|bits| *bits > infinite) || rest.iter().any(|l| l.is_nan()) {
            return Err(LogitsError::NotANumber);
        }
        if logit == f32::INFINITY {
            return Err(LogitsError::Infinite);
        }
        if logit == f32::NEG_INFINITY {
            return Err(LogitsError::NothingPossible);
        }
        let token = wide(FindLogit(row, logit)).expect("the highest logit is one of the row");
        Ok(PeakLogit { token: token as TokenId, logit })
    }
}

/// In lanes over whole chunks of a row: the highest logits, and the largest bits without the sign,
/// where NaNs lie above infinity.
struct RowExtremes<'a>(&'a [f32]);

impl NullaryFnOnce for RowExtremes<'_> {
    type Output = ([f32; LANES], [i32; LANES]);

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut highest = [f32::NEG_INFINITY; LANES];
        let mut largest = [0i32; LANES];
        for chunk in self.0.as_chunks::<LANES>().0 {
            for ((high, bits), l) in highest.iter_mut().zip(&mut largest).zip(chunk) {
                *high = if *l > *high { *l } else { *high };
                let size = (l.to_bits() & 0x7fff_ffff) as i32;
                *bits = if size > *bits { size } else { *bits };
            }
        }
        (highest, largest)
    }
}

/// The first place of a logit in a row.
struct FindLogit<'a>(&'a [f32], f32);

impl NullaryFnOnce for FindLogit<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let FindLogit(row, logit) = self;
        let at =
            row.chunks(BLOCK).position(|block| block.iter().fold(false, |found, l| found | (*l == logit)))? * BLOCK;
        Some(at + row[at..].iter().position(|l| *l == logit)?)
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
    wide(SumExponentials { row, peak, scale })
}

struct SumExponentials<'a> {
    row: &'a [f32],
    peak: f32,
    scale: f32,
}

impl NullaryFnOnce for SumExponentials<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let SumExponentials { row, peak, scale } = self;
        row.chunks(BLOCK).map(|block| block_sum(block, |l| exp((l - peak) * scale))).sum()
    }
}

/// Writes `exp((l - peak) * scale)` for a row to `weights`, the sums of its blocks to `blocks`, and
/// returns the whole sum.
pub(crate) fn exponentials(row: &[f32], peak: f32, scale: f32, weights: &mut Vec<f32>, blocks: &mut Vec<f64>) -> f64 {
    weights.resize(row.len(), 0.0);
    wide(ExponentiateRow { row, peak, scale, weights });
    sum_blocks(weights, blocks)
}

struct ExponentiateRow<'a> {
    row: &'a [f32],
    peak: f32,
    scale: f32,
    weights: &'a mut [f32],
}

impl NullaryFnOnce for ExponentiateRow<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ExponentiateRow { row, peak, scale, weights } = self;
        for (weight, l) in weights.iter_mut().zip(row) {
            *weight = exp((l - peak) * scale);
        }
    }
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
    fn wide_vectors_give_the_same_bits() {
        for len in [1usize, 15, 16, 17, 64, 65, 1000, 4097] {
            let row: Vec<f32> = (0..len).map(|i| ((i * 7919 + len) % 1009) as f32 * 0.093 - 60.0).collect();
            let (highest, largest) = RowExtremes(&row).call();
            assert_eq!(wide(RowExtremes(&row)), (highest, largest));
            let peak = PeakLogit::of(&row).expect("numbers");
            assert_eq!(Some(peak.token as usize), row.iter().position(|l| *l == peak.logit));
            assert!(row.iter().all(|l| *l <= peak.logit));
            for scale in [1.0, 1.25, 0.3] {
                let plain = SumExponentials { row: &row, peak: peak.logit, scale }.call();
                assert_eq!(sum_exp(&row, peak.logit, scale).to_bits(), plain.to_bits());
                let (mut weights, mut expected) = (vec![9.0; 3], vec![0.0; len]);
                exponentials(&row, peak.logit, scale, &mut weights, &mut Vec::new());
                ExponentiateRow { row: &row, peak: peak.logit, scale, weights: &mut expected }.call();
                assert_eq!(weights, expected);
            }
        }
    }

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
        assert_eq!(PeakLogit::of(&row), Ok(PeakLogit { token: 17, logit: 2.0 }));
        row[99] = 3.0;
        assert_eq!(PeakLogit::of(&row), Ok(PeakLogit { token: 99, logit: 3.0 }));
    }

    #[test]
    fn rows_that_cannot_be_sampled_are_named() {
        for at in [0, 40, 99] {
            let mut row = vec![0.0f32; 100];
            row[at] = f32::NAN;
            assert_eq!(PeakLogit::of(&row), Err(LogitsError::NotANumber));
            row[at] = f32::INFINITY;
            assert_eq!(PeakLogit::of(&row), Err(LogitsError::Infinite));
        }
        assert_eq!(PeakLogit::of(&[f32::NEG_INFINITY; 20]), Err(LogitsError::NothingPossible));
        assert_eq!(PeakLogit::of(&[]), Err(LogitsError::NothingPossible));
    }
}
