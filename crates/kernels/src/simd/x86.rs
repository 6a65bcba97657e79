//! The vectors of x86: AVX2 with eight lanes and AVX-512 with sixteen.

use std::arch::x86_64::*;

use crate::simd::lanes::{Lanes, RECIPROCAL};

/// Eight lanes: AVX2, FMA and F16C. The private field keeps others from making one without the proof.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU must have AVX2, FMA and F16C.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Avx2(())
    }
}

/// Sixteen lanes: AVX-512 F, BW and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU must have AVX-512 F, BW and VL.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Avx512(())
    }
}

/// An intrinsic that touches no memory, called under the proof that `self` is.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: `self` proves that the CPU has these instructions, and they touch registers only.
        unsafe { $e }
    };
}

impl Lanes for Avx2 {
    type V = __m256;
    const WIDTH: usize = 8;

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
    fn min(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_min_ps(a, b))
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

impl Lanes for Avx512 {
    type V = __m512;
    const WIDTH: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        if let Some(all) = from.first_chunk::<16>() {
            // SAFETY: `all` holds 16 values, and `self` proves AVX-512.
            unsafe { _mm512_loadu_ps(all.as_ptr()) }
        } else {
            // SAFETY: the mask keeps the load to the values that `from` has; `self` proves AVX-512.
            unsafe { _mm512_maskz_loadu_ps((1 << from.len()) - 1, from.as_ptr()) }
        }
    }
    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32]) {
        if let Some(all) = to.first_chunk_mut::<16>() {
            // SAFETY: `all` holds 16 values, and `self` proves AVX-512.
            unsafe { _mm512_storeu_ps(all.as_mut_ptr(), v) }
        } else {
            // SAFETY: the mask keeps the store to the values that `to` has; `self` proves AVX-512.
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), (1 << to.len()) - 1, v) }
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller allows reading 32 bytes; `self` proves AVX-512.
        unsafe { _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m512 {
        // SAFETY: the caller allows reading 16 bytes; `self` proves AVX-512.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> __m512 {
        // SAFETY: the caller allows reading 16 values; `self` proves AVX-512.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: __m512, to: *mut f32) {
        // SAFETY: the caller allows writing 16 values; `self` proves AVX-512.
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        op!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes))
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, yes: __m512, no: __m512) -> __m512 {
        let inside = ((1u32 << to.min(16)) - 1) & !((1u32 << from.min(16)) - 1);
        op!(_mm512_mask_blend_ps(inside as u16, no, yes))
    }
    #[inline(always)]
    fn exp2_of_magic(self, t: __m512) -> __m512 {
        op!({
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(t));
            _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f80_0000)))
        })
    }
    #[inline(always)]
    fn reciprocal_guess(self, d: __m512) -> __m512 {
        op!(_mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(RECIPROCAL as i32), _mm512_castps_si512(d))))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: __m512, to: *mut u16) {
        // SAFETY: the caller allows writing 32 bytes; `self` proves AVX-512.
        unsafe {
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v))
        }
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        op!({
            let v = _mm512_add_ps(v, _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v));
            let v = _mm512_add_ps(v, _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v));
            let v = _mm512_castps512_ps128(v);
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
        })
    }
    #[inline(always)]
    fn maximum(self, v: __m512) -> f32 {
        op!({
            let v = _mm512_max_ps(v, _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v));
            let v = _mm512_max_ps(v, _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v));
            let v = _mm512_castps512_ps128(v);
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
        })
    }
}
