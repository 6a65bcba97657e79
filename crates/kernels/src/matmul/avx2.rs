//! The matrix kernels' operations in AVX2: 8 lanes.
//!
//! `maddubs` adds two products of bytes in 16 bits with saturation. Values of up to 6 bits times 127 cannot reach it, and
//! of the narrower ones several sums fit 16 bits before they are widened. Values of 8 bits could saturate: there the signs
//! are moved to the activations, and |-128| * 127 * 2 fits again.
//!
//! With AVX-VNNI, `dpbusd` does it all. Integer sums are exact either way, so the bits of the products are the same.

use std::arch::x86_64::*;

use crate::matmul::tile::kernel;
use crate::simd::Simd;

/// AVX2 with FMA and F16C, and AVX-VNNI too if `VNNI`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>;

kernel!(Avx2<false>, ["avx2,fma,f16c"], [1 2 3 4], [1 2 3]);
kernel!(Avx2<true>, ["avx2,fma,f16c,avxvnni"], [1 2 3 4], [1 2 3]);

/// The quad of bytes at `q` in every lane.
///
/// # Safety
/// As [`Simd`]; `q` points to 4 bytes.
#[inline(always)]
unsafe fn quad(q: *const i8) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_set1_epi32(q.cast::<i32>().read_unaligned()) }
}

/// Sums of neighbouring 16-bit values in 32 bits.
///
/// # Safety
/// As [`Simd`].
#[inline(always)]
unsafe fn widen(pairs: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)) }
}

/// [`Simd::dot`] for one row, without VNNI.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn dot_by_pairs(init: __m256i, u: &[__m256i], bits: u32, q: *const i8) -> __m256i {
    // How many sums of two products fit 16 bits: 8 * 2 * 15 * 127, 4 * 2 * 31 * 127 and 2 * 2 * 63 * 127 are below 2^15.
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

/// [`Simd::dot_128`] for one row, without VNNI.
///
/// # Safety
/// As there.
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

// SAFETY (all functions): the instruction set and the pointers are the caller's to vouch for, see `Simd`.
impl<const VNNI: bool> Simd for Avx2<VNNI> {
    const LANES: usize = 8;
    const TILE: usize = 4;
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 3;
    type B = __m256i;
    type I = __m256i;
    type F = __m256;

    #[inline(always)]
    unsafe fn bytes(p: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn shr_and(b: __m256i, n: u32, mask: u8) -> __m256i {
        // Bits that cross bytes are masked away.
        // SAFETY: see above.
        unsafe { _mm256_and_si256(_mm256_srl_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn shl_and(b: __m256i, n: u32, mask: u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_and_si256(_mm256_sll_epi16(b, _mm_cvtsi32_si128(n as i32)), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn int_zero() -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn int_splat_shifted(p: *const i32, by: i32) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let v = _mm256_set1_epi32(p.read());
            if by >= 0 {
                _mm256_sll_epi32(v, _mm_cvtsi32_si128(by))
            } else {
                _mm256_sra_epi32(v, _mm_cvtsi32_si128(-by))
            }
        }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        sums: &mut [[__m256i; M]; N],
        u: &[[__m256i; J]; N],
        bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        for ((sums, u), q) in sums.iter_mut().zip(u).zip(q) {
            if VNNI {
                for (j, u) in u.iter().enumerate() {
                    for (sum, q) in sums.iter_mut().zip(q) {
                        // SAFETY: see above; `q` is 4 * J long.
                        *sum = unsafe { _mm256_dpbusd_avx_epi32(*sum, *u, quad(q.add(4 * j))) };
                    }
                }
            } else {
                for (sum, q) in sums.iter_mut().zip(q) {
                    // SAFETY: see above.
                    *sum = unsafe { dot_by_pairs(*sum, u, bits, *q) };
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_128<const M: usize, const N: usize>(
        sums: &mut [[__m256i; M]; N],
        u: &[[__m256i; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    ) {
        for i in 0..N {
            for r in 0..M {
                // SAFETY: see above.
                sums[i][r] = unsafe {
                    if VNNI { Self::int_splat_shifted(neg_sum[i][r], 0) } else { dot_128_by_pairs(&u[i], q[i][r]) }
                };
            }
        }
        if VNNI {
            // SAFETY: see above.
            unsafe { Self::dot(sums, u, 8, q) };
        }
    }
    #[inline(always)]
    unsafe fn to_float(i: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(i) }
    }

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(p.read()) }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8, n: u32, mask: u8) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let i = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
            let i = _mm256_srl_epi32(i, _mm_cvtsi32_si128(n as i32));
            _mm256_cvtepi32_ps(_mm256_and_si256(i, _mm256_set1_epi32(i32::from(mask))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn neg(a: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: see above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        // SAFETY: see above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    Avx2::<false>::dot(&mut four, &[[u; 4]], bits, &[[q.as_ptr()]]);
                    Avx2::<false>::dot(&mut eight, &[[u; 8]], bits, &[[q.as_ptr()]]);
                }
                for (vectors, sums) in [(4, four), (8, eight)] {
                    assert_eq!(lanes(sums[0][0]), [vectors * 4 * i32::from(most) * each - 5; 8], "{bits} bits");
                }
            }
            for byte in [0u8, 1, 127, 128, 129, 255] {
                let u = [[_mm256_set1_epi8(byte as i8); 8]];
                let mut sums = [[_mm256_setzero_si256()]];
                // SAFETY: AVX2 is on, `q` is 32 long.
                unsafe { Avx2::<false>::dot_128(&mut sums, &u, &[[q.as_ptr()]], &[[&(-128 * 32 * each)]]) };
                assert_eq!(lanes(sums[0][0]), [32 * (i32::from(byte) - 128) * each; 8], "byte {byte}");
            }
        }
    }

    #[test]
    fn sums_without_vnni_never_saturate() {
        if crate::simd::Isa::Avx2.is_available() {
            // SAFETY: the features are there.
            unsafe { check_extremes() };
        }
    }
}
