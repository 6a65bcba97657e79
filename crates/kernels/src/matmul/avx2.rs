//! Byte products in AVX2: 8 lanes.
//!
//! `maddubs` adds two products of bytes in 16 bits, with saturation. Values of up to 6 bits times
//! 127 do not saturate, and several sums of narrower values fit 16 bits before they are widened.
//! Values of 8 bits could saturate. For these the signs move to the activations, and |-128| * 127 *
//! 2 fits again.
//!
//! With AVX-VNNI one instruction, `dpbusd`, replaces this. Integer sums are exact either way, so
//! the bits are the same.

use std::arch::x86_64::*;

use crate::matmul::bytes::ByteLanes;
use crate::matmul::tile::kernel;
use crate::simd::{Avx2, Isa};

kernel!(Avx2<false>, ["avx2,fma,f16c"], [1 2 3 4], [1 2 3]);
kernel!(Avx2<true>, ["avx2,fma,f16c,avxvnni"], [1 2 3 4], [1 2 3]);

/// The quad of bytes at `q` in every lane.
///
/// # Safety
/// The processor has AVX2; `q` points to 4 bytes.
#[inline(always)]
unsafe fn quad(q: *const i8) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_set1_epi32(q.cast::<i32>().read_unaligned()) }
}

/// Sums of neighbouring 16-bit values in 32 bits.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn widen(pairs: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)) }
}

/// [`ByteLanes::dot`] for one row, without VNNI.
///
/// # Safety
/// The processor has AVX2; as there.
#[inline(always)]
unsafe fn dot_by_pairs(init: __m256i, u: &[__m256i], bits: u32, q: *const i8) -> __m256i {
    // Number of sums of two products that fit 16 bits: 8 * 2 * 15 * 127, 4 * 2 * 31 * 127 and 2 * 2
    // * 63 * 127 are below 2^15.
    let fit = match bits {
        0..=4 => 8,
        5 => 4,
        _ => 2,
    };
    let mut sum = init;
    let mut j = 0;
    while j < u.len() {
        // SAFETY: the caller's; `q` is 4 * u.len() long.
        unsafe {
            let mut pairs = _mm256_maddubs_epi16(u[j], quad(q.add(4 * j)));
            let mut i = 1;
            while i < fit && j + i < u.len() {
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(u[j + i], quad(q.add(4 * (j + i)))));
                i += 1;
            }
            sum = _mm256_add_epi32(sum, widen(pairs));
        }
        j += fit;
    }
    sum
}

/// [`ByteLanes::dot_128`] for one row, without VNNI.
///
/// # Safety
/// The processor has AVX2; as there.
#[inline(always)]
unsafe fn dot_128_by_pairs(u: &[__m256i; 8], q: *const i8) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let mut sum = _mm256_setzero_si256();
        for (j, u) in u.iter().enumerate() {
            let w = _mm256_xor_si256(*u, _mm256_set1_epi8(-128));
            let q = _mm256_sign_epi8(quad(q.add(4 * j)), w);
            sum = _mm256_add_epi32(sum, widen(_mm256_maddubs_epi16(_mm256_abs_epi8(w), q)));
        }
        sum
    }
}

impl<const VNNI: bool> ByteLanes for Avx2<VNNI> {
    const TILE: usize = Isa::Avx2.tile_rows();
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 3;
    type B = __m256i;
    type I = __m256i;

    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    fn shr_and(self, b: __m256i, n: u32, mask: u8) -> __m256i {
        // Bits that cross bytes are masked away.
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_and_si256(_mm256_srl_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn shl_and(self, b: __m256i, n: u32, mask: u8) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_and_si256(_mm256_sll_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn int_zero(self) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn int_splat_shifted(self, x: i32, by: i32) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let v = _mm256_set1_epi32(x);
            if by >= 0 {
                _mm256_sll_epi32(v, _mm_cvtsi32_si128(by))
            } else {
                _mm256_sra_epi32(v, _mm_cvtsi32_si128(-by))
            }
        }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        self,
        sums: &mut [[__m256i; M]; N],
        u: &[[__m256i; J]; N],
        bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        for ((sums, u), q) in sums.iter_mut().zip(u).zip(q) {
            if VNNI {
                for (j, u) in u.iter().enumerate() {
                    for (sum, q) in sums.iter_mut().zip(q) {
                        // SAFETY: `self` proves the instruction set; `q` is 4 * J long.
                        *sum = unsafe { _mm256_dpbusd_avx_epi32(*sum, *u, quad(q.add(4 * j))) };
                    }
                }
            } else {
                for (sum, q) in sums.iter_mut().zip(q) {
                    // SAFETY: `self` proves the instruction set.
                    *sum = unsafe { dot_by_pairs(*sum, u, bits, *q) };
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_128<const M: usize, const N: usize>(
        self,
        sums: &mut [[__m256i; M]; N],
        u: &[[__m256i; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    ) {
        for i in 0..N {
            for r in 0..M {
                // SAFETY: `self` proves the instruction set.
                sums[i][r] = unsafe {
                    if VNNI {
                        self.int_splat_shifted(neg_sum[i][r].read(), 0)
                    } else {
                        dot_128_by_pairs(&u[i], q[i][r])
                    }
                };
            }
        }
        if VNNI {
            // SAFETY: `self` proves the instruction set.
            unsafe { self.dot(sums, u, 8, q) };
        }
    }
    #[inline(always)]
    fn to_float(self, i: __m256i) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_cvtepi32_ps(i) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Lanes;

    #[target_feature(enable = "avx2,fma,f16c")]
    fn lanes(i: __m256i) -> [i32; 8] {
        // SAFETY: both are 32 bytes of plain integers.
        unsafe { std::mem::transmute(i) }
    }

    /// Without VNNI: the largest values, with activations that push every partial sum one way.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn check_extremes() {
        for activation in [127i8, -127] {
            let q = [activation; 32];
            let each = i32::from(activation);
            for bits in 1..=6 {
                let most = (1u8 << bits) - 1;
                let u = _mm256_set1_epi8(most as i8);
                let (mut four, mut eight) = ([[_mm256_set1_epi32(-5)]], [[_mm256_set1_epi32(-5)]]);
                // SAFETY: AVX2 is on, `q` is 32 long.
                unsafe {
                    Avx2::<false>::assume().dot(&mut four, &[[u; 4]], bits, &[[q.as_ptr()]]);
                    Avx2::<false>::assume().dot(&mut eight, &[[u; 8]], bits, &[[q.as_ptr()]]);
                }
                for (vectors, sums) in [(4, four), (8, eight)] {
                    assert_eq!(lanes(sums[0][0]), [vectors * 4 * i32::from(most) * each - 5; 8], "{bits} bits");
                }
            }
            for byte in [0u8, 1, 127, 128, 129, 255] {
                let u = [[_mm256_set1_epi8(byte as i8); 8]];
                let mut sums = [[_mm256_setzero_si256()]];
                // SAFETY: AVX2 is on, `q` is 32 long.
                unsafe { Avx2::<false>::assume().dot_128(&mut sums, &u, &[[q.as_ptr()]], &[[&(-128 * 32 * each)]]) };
                assert_eq!(lanes(sums[0][0]), [32 * (i32::from(byte) - 128) * each; 8], "byte {byte}");
            }
        }
    }

    #[test]
    fn sums_without_vnni_never_saturate() {
        if Isa::Avx2.is_available() {
            // SAFETY: the features are there.
            unsafe { check_extremes() };
        }
    }
}
