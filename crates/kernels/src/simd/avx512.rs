//! [`Lanes`] in AVX-512: sixteen lanes.

use std::arch::x86_64::*;

use crate::simd::lanes::{Lanes, RECIPROCAL};

/// AVX-512 (F, BW, VL) with VNNI, AVX2, FMA and F16C. The private field keeps others from making
/// one without the proof.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// An intrinsic that touches no memory, called under the proof that `self` is.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: `self` proves that the CPU has these instructions, and they touch registers only.
        unsafe { $e }
    };
}

impl Lanes for Avx512 {
    type V = __m512;
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Avx512(())
    }

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
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller allows reading 32 bytes; `self` proves AVX-512.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, shift: u32, mask: u8) -> __m512 {
        // SAFETY: the caller allows reading 16 bytes; `self` proves AVX-512.
        unsafe {
            let i = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let i = _mm512_srl_epi32(i, _mm_cvtsi32_si128(shift as i32));
            _mm512_cvtepi32_ps(_mm512_and_si512(i, _mm512_set1_epi32(i32::from(mask))))
        }
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
    fn neg(self, a: __m512) -> __m512 {
        op!(_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(i32::MIN))))
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
