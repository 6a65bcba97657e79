//! From floats to 8-bit blocks: the same bits on every instruction set.
//!
//! A block's scale is its largest magnitude over 127; its values are rounded to the nearest integer, ties to even. A block with a
//! NaN or an infinity gets a NaN scale and no values. A few blocks go through each stage together, because the divisions and
//! the horizontal sums of one alone would be waited for.

use crate::activations::{BLOCK, Blocks};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::matmul_avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::matmul_avx512::Avx512;
use crate::matmul_scalar::Scalar;

/// Blocks that go through the stages together.
const BATCH: usize = 16;

/// The two stages that run along a block, one implementation for each instruction set.
///
/// # Safety
/// Every function needs the implementation's instruction set.
trait Quantizer {
    /// The largest magnitude, as bits. Magnitudes order as their bits do, with infinity and then NaN above all numbers, so
    /// the maximum cannot hide them.
    unsafe fn largest(values: &[f32; BLOCK]) -> u32;
    /// Writes `values * inverse`, rounded to the nearest integers, ties to even, and gives the sums of the two halves. Products
    /// are at most 127 in magnitude, or NaN, which becomes 0.
    unsafe fn round(values: &[f32; BLOCK], inverse: f32, q: &mut [i8; BLOCK]) -> [i32; 2];
}

/// Quantises a run of values of one row. The last block is padded with zeros if need be.
pub(crate) fn quantize_row(isa: Isa, src: &[f32], blocks: Blocks<'_>) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2(src: &[f32], blocks: Blocks<'_>) {
        // SAFETY: this function has the features.
        unsafe { quantize::<Avx2<false>>(src, blocks) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
    fn avx512(src: &[f32], blocks: Blocks<'_>) {
        // SAFETY: this function has the features.
        unsafe { quantize::<Avx512>(src, blocks) }
    }
    match isa {
        // SAFETY: an `Isa` in use is one that the processor has (`Compute::new` checks it).
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(src, blocks) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => unsafe { avx512(src, blocks) },
        // SAFETY: `Scalar` needs no special instructions.
        _ => unsafe { quantize::<Scalar>(src, blocks) },
    }
}

/// # Safety
/// As [`Quantizer`].
#[inline(always)]
unsafe fn quantize<Q: Quantizer>(src: &[f32], blocks: Blocks<'_>) {
    let Blocks { q, scale, sum, half_sum, neg_sum, neg_half } = blocks;
    let mut padded = [0f32; BLOCK];
    let (whole, rest) = src.as_chunks::<BLOCK>();
    padded[..rest.len()].copy_from_slice(rest);
    let (q, _) = q.as_chunks_mut::<BLOCK>();
    let count = src.len().div_ceil(BLOCK);
    let mut first = 0;
    while first < count {
        let n = BATCH.min(count - first);
        let mut inverse = [0f32; BATCH];
        let mut scales = [0f32; BATCH];
        for i in 0..n {
            let values = whole.get(first + i).unwrap_or(&padded);
            // SAFETY: the caller's.
            scales[i] = f32::from_bits(unsafe { Q::largest(values) });
        }
        for (inverse, scale) in inverse.iter_mut().zip(&mut scales) {
            let largest = *scale;
            let usable = 127.0 / largest;
            // Not usable: all zeros, or below 4e-37.
            *inverse = if largest.is_finite() && usable.is_finite() { usable } else { 0.0 };
            *scale = match (largest.is_finite(), usable.is_finite()) {
                (true, true) => largest / 127.0,
                (true, false) => 0.0,
                (false, _) => f32::NAN,
            };
        }
        let mut sums = [[0i32; 2]; BATCH];
        for i in 0..n {
            let values = whole.get(first + i).unwrap_or(&padded);
            // SAFETY: the caller's.
            sums[i] = unsafe { Q::round(values, inverse[i], &mut q[first + i]) };
        }
        let range = first..first + n;
        scale[range.clone()].copy_from_slice(&scales[..n]);
        let out = sum[range.clone()].iter_mut().zip(&mut half_sum[range.clone()]);
        let negated = neg_sum[range.clone()].iter_mut().zip(&mut neg_half[range]);
        for (((sum, half_sum), (neg_sum, neg_half)), ([a, b], s)) in out.zip(negated).zip(sums.iter().zip(&scales)) {
            *sum = s * (a + b) as f32;
            *half_sum = [s * *a as f32, s * *b as f32];
            *neg_sum = -(a + b);
            *neg_half = [-a, -b];
        }
        first += n;
    }
}

impl Quantizer for Scalar {
    unsafe fn largest(values: &[f32; BLOCK]) -> u32 {
        values.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff))
    }
    unsafe fn round(values: &[f32; BLOCK], inverse: f32, q: &mut [i8; BLOCK]) -> [i32; 2] {
        for (q, x) in q.iter_mut().zip(values) {
            *q = (x * inverse).round_ties_even() as i8; // NaN becomes 0
        }
        [0, 1].map(|half| q[16 * half..][..16].iter().map(|q| i32::from(*q)).sum())
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Avx2, Avx512, BLOCK, Quantizer};

    /// The sums of lanes 0 to 3 and 4 to 7.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half_sums(v: __m256i) -> [i32; 2] {
        let v = _mm256_hadd_epi32(v, v);
        let v = _mm256_hadd_epi32(v, v);
        [_mm256_extract_epi32::<0>(v), _mm256_extract_epi32::<4>(v)]
    }

    /// The largest of 8 non-negative integers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn largest_of(v: __m256i) -> u32 {
        let v = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = _mm_max_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
        let v = _mm_max_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v));
        _mm_cvtsi128_si32(v) as u32
    }

    impl Quantizer for Avx2<false> {
        #[inline(always)]
        unsafe fn largest(values: &[f32; BLOCK]) -> u32 {
            // SAFETY: the block has 4 vectors of 8 floats; the set is the caller's.
            unsafe {
                let magnitude = |i: usize| {
                    let v = _mm256_loadu_si256(values.as_ptr().add(8 * i).cast());
                    _mm256_and_si256(v, _mm256_set1_epi32(0x7fff_ffff))
                };
                let first = _mm256_max_epi32(magnitude(0), magnitude(1));
                largest_of(_mm256_max_epi32(first, _mm256_max_epi32(magnitude(2), magnitude(3))))
            }
        }
        #[inline(always)]
        unsafe fn round(values: &[f32; BLOCK], inverse: f32, q: &mut [i8; BLOCK]) -> [i32; 2] {
            // SAFETY: as above, and `q` has room for 32 bytes. A NaN becomes the lowest integer, whose saturated bytes would be
            // -128: its mask makes it 0.
            unsafe {
                let rounded = |i: usize| {
                    let x = _mm256_mul_ps(_mm256_loadu_ps(values.as_ptr().add(8 * i)), _mm256_set1_ps(inverse));
                    let number = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_ORD_Q>(x, x));
                    _mm256_and_si256(_mm256_cvtps_epi32(x), number)
                };
                let first = _mm256_packs_epi32(rounded(0), rounded(1));
                let second = _mm256_packs_epi32(rounded(2), rounded(3));
                // Packing works in halves of 128 bits: the quads come out as 0 2 4 6 1 3 5 7.
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
                _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes);
                let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
                half_sums(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            }
        }
    }

    impl Quantizer for Avx512 {
        #[inline(always)]
        unsafe fn largest(values: &[f32; BLOCK]) -> u32 {
            // SAFETY: the block has 2 vectors of 16 floats; the set is the caller's.
            unsafe {
                let mask = _mm512_set1_epi32(0x7fff_ffff);
                let a = _mm512_and_si512(_mm512_loadu_si512(values.as_ptr().cast()), mask);
                let b = _mm512_and_si512(_mm512_loadu_si512(values.as_ptr().add(16).cast()), mask);
                let most = _mm512_max_epi32(a, b);
                largest_of(_mm256_max_epi32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64::<1>(most)))
            }
        }
        #[inline(always)]
        unsafe fn round(values: &[f32; BLOCK], inverse: f32, q: &mut [i8; BLOCK]) -> [i32; 2] {
            // SAFETY: as above, and `q` has room for 32 bytes. A NaN becomes the lowest integer, whose low byte is 0.
            unsafe {
                let inverse = _mm512_set1_ps(inverse);
                let rounded = |i: usize| {
                    let x = _mm512_mul_ps(_mm512_loadu_ps(values.as_ptr().add(16 * i)), inverse);
                    _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x))
                };
                let bytes = _mm256_set_m128i(rounded(1), rounded(0));
                _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes);
                half_sums(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes))
            }
        }
    }
}
