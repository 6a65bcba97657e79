//! Quantises floats to 8-bit blocks, with the same bits on every instruction set.
//!
//! A block's scale is its largest magnitude over 127. Its integers are the values times (127 over
//! that magnitude), a quotient and a product in f32, rounded to the nearest, ties to even. A block
//! of zeros, or of numbers below 4e-37, has scale 0. A block with a NaN or an infinity gets a NaN
//! scale and zeros as integers.

use crate::activations::blocks::{BLOCK, BlockPtrs, NEG_HALF, NEG_SUM};
use crate::simd::{Isa, MAGIC, largest_magnitude};

impl BlockPtrs {
    /// Writes a block of zeros. Its scale is 0, or NaN if `largest`, the bits of its largest
    /// magnitude, is not finite.
    ///
    /// # Safety
    /// Every pointer may be written for one block.
    #[cold]
    unsafe fn write_empty(self, largest: u32) {
        let scale = if largest < f32::INFINITY.to_bits() { 0.0 } else { f32::NAN };
        // SAFETY: the caller's.
        unsafe {
            self.q.cast::<[i8; BLOCK]>().write([0; BLOCK]);
            self.scale.write(scale);
            self.sum.write(scale);
            self.half_sum.write([scale; 2]);
            self.neg_sum.write([0; 2]);
            self.neg_half.write([0; 2]);
        }
    }
}

/// Bits of the least magnitude m for which 127 / m is finite.
const LEAST: u32 = 0x02fe_0001;

/// Whether a block with this largest magnitude, as bits, has integers other than 0.
#[inline(always)]
fn has_values(largest: u32) -> bool {
    (LEAST..f32::INFINITY.to_bits()).contains(&largest)
}

/// Quantises the `n` blocks of 32 values at `values`, which lie one after the other. The first goes
/// to `out`, each further one `step` blocks after the one before.
///
/// # Safety
/// The processor has `isa`; `values` can be read, and `out` be written at those places.
pub(crate) unsafe fn quantize_blocks(isa: Isa, values: *const f32, n: usize, out: BlockPtrs, step: usize) {
    // SAFETY: the caller's.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::avx2(values, n, out, step),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => x86::avx512(values, n, out, step),
            _ => (0..n).for_each(|b| scalar(&*values.add(b * BLOCK).cast(), out.skip(b * step))),
        }
    }
}

/// # Safety
/// As [`BlockPtrs::write_empty`].
unsafe fn scalar(values: &[f32; BLOCK], out: BlockPtrs) {
    let largest = largest_magnitude(values);
    // SAFETY: the caller's.
    unsafe {
        if !has_values(largest) {
            return out.write_empty(largest);
        }
        let largest = f32::from_bits(largest);
        let (inverse, scale) = (127.0 / largest, largest / 127.0);
        // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to even, without a
        // library call.
        let q = values.map(|x| (x * inverse + MAGIC - MAGIC) as i8);
        let [a, b] = [0, 1].map(|half| q[16 * half..][..16].iter().map(|q| i32::from(*q)).sum::<i32>());
        out.q.cast::<[i8; BLOCK]>().write(q);
        out.scale.write(scale);
        out.sum.write(scale * (a + b) as f32);
        out.half_sum.write([scale * a as f32, scale * b as f32]);
        out.neg_sum.write(NEG_SUM.map(|by| -(a + b) << by));
        out.neg_half.write([-a << NEG_HALF, -b << NEG_HALF]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BLOCK, BlockPtrs, NEG_HALF, NEG_SUM, has_values};

    /// The largest of 8 non-negative integers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn largest_of(v: __m256i) -> u32 {
        let v = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = _mm_max_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
        let v = _mm_max_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v));
        _mm_cvtsi128_si32(v) as u32
    }

    /// Writes scale and sums, given sums of values whose lanes 0 to 3 make the first half and 4 to
    /// 7 the second.
    ///
    /// # Safety
    /// As [`BlockPtrs::write_empty`].
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn write_sums(out: BlockPtrs, scale: f32, sums: __m256i) {
        let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
        let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
        let (first, second) = (_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let (halves, whole) = (_mm_unpacklo_epi32(first, second), _mm_add_epi32(first, second));
        let s = _mm_set1_ps(scale);
        let zero = _mm_setzero_si128();
        // SAFETY: the caller's; 8 bytes for each half's, 4 for each whole's.
        unsafe {
            out.scale.write(scale);
            out.sum.write(_mm_cvtss_f32(_mm_mul_ps(_mm_cvtepi32_ps(whole), s)));
            _mm_storel_epi64(out.half_sum.cast(), _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(halves), s)));
            // `whole` is the sum in every lane.
            let by = _mm_setr_epi32(NEG_SUM[0], NEG_SUM[1], 0, 0);
            _mm_storel_epi64(out.neg_sum.cast(), _mm_sllv_epi32(_mm_sub_epi32(zero, whole), by));
            _mm_storel_epi64(out.neg_half.cast(), _mm_slli_epi32::<NEG_HALF>(_mm_sub_epi32(zero, halves)));
        }
    }

    /// # Safety
    /// As [`super::quantize_blocks`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(values: *const f32, n: usize, out: BlockPtrs, step: usize) {
        for b in 0..n {
            // SAFETY: the caller's: 4 vectors of 8 values, and a place for the block.
            unsafe {
                let (values, out) = (values.add(b * BLOCK), out.skip(b * step));
                let v: [__m256; 4] = [
                    _mm256_loadu_ps(values),
                    _mm256_loadu_ps(values.add(8)),
                    _mm256_loadu_ps(values.add(16)),
                    _mm256_loadu_ps(values.add(24)),
                ];
                let mut most = _mm256_setzero_si256();
                for v in v {
                    let magnitude = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fff_ffff));
                    most = _mm256_max_epi32(most, magnitude);
                }
                let largest = largest_of(most);
                if !has_values(largest) {
                    out.write_empty(largest);
                    continue;
                }
                let largest = f32::from_bits(largest);
                let inverse = _mm256_set1_ps(127.0 / largest);
                let mut ints = [_mm256_setzero_si256(); 4];
                for (ints, v) in ints.iter_mut().zip(v) {
                    *ints = _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse));
                }
                let words =
                    _mm256_packs_epi16(_mm256_packs_epi32(ints[0], ints[1]), _mm256_packs_epi32(ints[2], ints[3]));
                // Packing works in halves of 128 bits: the quads come out as 0 2 4 6 1 3 5 7.
                let bytes = _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
                _mm256_storeu_si256(out.q.cast(), bytes);
                let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
                write_sums(out, largest / 127.0, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            }
        }
    }

    /// # Safety
    /// As [`super::quantize_blocks`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
    pub(super) unsafe fn avx512(values: *const f32, n: usize, out: BlockPtrs, step: usize) {
        for b in 0..n {
            // SAFETY: the caller's: 2 vectors of 16 values, and a place for the block.
            unsafe {
                let (values, out) = (values.add(b * BLOCK), out.skip(b * step));
                let (first, second) = (_mm512_loadu_ps(values), _mm512_loadu_ps(values.add(16)));
                let magnitude = |v| _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fff_ffff));
                let most = _mm512_max_epi32(magnitude(first), magnitude(second));
                let most = _mm256_max_epi32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64::<1>(most));
                let largest = largest_of(most);
                if !has_values(largest) {
                    out.write_empty(largest);
                    continue;
                }
                let largest = f32::from_bits(largest);
                let inverse = _mm512_set1_ps(127.0 / largest);
                let first = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)));
                let second = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(second, inverse)));
                let bytes = _mm256_set_m128i(second, first);
                _mm256_storeu_si256(out.q.cast(), bytes);
                let sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
                write_sums(out, largest / 127.0, sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_magnitude_with_values_is_the_least_whose_inverse_is_finite() {
        assert!((127.0 / f32::from_bits(LEAST)).is_finite());
        assert!((127.0 / f32::from_bits(LEAST - 1)).is_infinite());
    }
}
