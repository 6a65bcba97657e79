//! [`Lanes`] in AVX2: eight lanes.

use std::arch::x86_64::*;

use crate::simd::lanes::{Lanes, RECIPROCAL};

/// AVX2 with FMA and F16C, and AVX-VNNI too if `VNNI`. The private field keeps others from making
/// one without the proof.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>(());

/// An intrinsic that touches no memory, called under the proof that `self` is.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: `self` proves that the CPU has these instructions, and they touch registers only.
        unsafe { $e }
    };
}

impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    type V = __m256;
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Avx2(())
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        op!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        let mut all = [0.0; 8];
        let from = match from.first_chunk::<8>() {
            Some(all) => all,
            None => {
                all[..from.len()].copy_from_slice(from);
                &all
            }
        };
        // SAFETY: `from` holds 8 values, and `self` proves AVX.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32]) {
        if let Some(all) = to.first_chunk_mut::<8>() {
            // SAFETY: `all` holds 8 values, and `self` proves AVX.
            unsafe { _mm256_storeu_ps(all.as_mut_ptr(), v) }
        } else {
            let mut all = [0.0; 8];
            // SAFETY: `all` holds 8 values, and `self` proves AVX.
            unsafe { _mm256_storeu_ps(all.as_mut_ptr(), v) }
            let n = to.len();
            to.copy_from_slice(&all[..n]);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m256 {
        // SAFETY: the caller allows reading 16 bytes; `self` proves F16C.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m256 {
        // SAFETY: the caller allows reading 16 bytes; `self` proves AVX2.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, shift: u32, mask: u8) -> __m256 {
        // SAFETY: the caller allows reading 8 bytes; `self` proves AVX2.
        unsafe {
            let i = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let i = _mm256_srl_epi32(i, _mm_cvtsi32_si128(shift as i32));
            _mm256_cvtepi32_ps(_mm256_and_si256(i, _mm256_set1_epi32(i32::from(mask))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m256 {
        // SAFETY: the caller allows reading 8 bytes; `self` proves AVX2.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m256 {
        // SAFETY: the caller allows reading 8 values; `self` proves AVX.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: __m256, to: *mut f32) {
        // SAFETY: the caller allows writing 8 values; `self` proves AVX.
        unsafe { _mm256_storeu_ps(to, v) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn neg(self, a: __m256) -> __m256 {
        op!(_mm256_xor_ps(a, _mm256_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        op!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn select_less(self, a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
        op!(_mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)))
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, yes: __m256, no: __m256) -> __m256 {
        op!({
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(from.min(8) as i32), lane);
            let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(to.min(8) as i32), lane);
            _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(_mm256_andnot_si256(before, inside)))
        })
    }
    #[inline(always)]
    fn exp2_of_magic(self, t: __m256) -> __m256 {
        op!({
            let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(t));
            _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f80_0000)))
        })
    }
    #[inline(always)]
    fn reciprocal_guess(self, d: __m256) -> __m256 {
        op!(_mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32(RECIPROCAL as i32), _mm256_castps_si256(d))))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: __m256, to: *mut u16) {
        // SAFETY: the caller allows writing 16 bytes; `self` proves F16C.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        op!({
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
        })
    }
    #[inline(always)]
    fn maximum(self, v: __m256) -> f32 {
        op!({
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
        })
    }
}
