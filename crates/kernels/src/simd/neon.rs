//! [`Lanes`] in NEON: four lanes.
//!
//! The language has no stable names yet for the conversions from and to f16, so those instructions
//! are written out.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::simd::lanes::{Lanes, RECIPROCAL};

/// NEON with the dot product extension (ARMv8.2). The private field keeps others from making one
/// without the proof.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

/// An intrinsic that touches no memory, called under the proof that `self` is.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: `self` proves that the CPU has these instructions, and they touch registers only.
        unsafe { $e }
    };
}

impl Lanes for Neon {
    type V = float32x4_t;
    const WIDTH: usize = 4;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Neon(())
    }
    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        op!(vdupq_n_f32(x))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> float32x4_t {
        let mut all = [0.0; 4];
        let from = match from.first_chunk::<4>() {
            Some(all) => all,
            None => {
                all[..from.len()].copy_from_slice(from);
                &all
            }
        };
        // SAFETY: `from` holds 4 values, and `self` proves NEON.
        unsafe { vld1q_f32(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: float32x4_t, to: &mut [f32]) {
        if let Some(all) = to.first_chunk_mut::<4>() {
            // SAFETY: `all` holds 4 values, and `self` proves NEON.
            unsafe { vst1q_f32(all.as_mut_ptr(), v) }
        } else {
            let mut all = [0.0; 4];
            // SAFETY: `all` holds 4 values, and `self` proves NEON.
            unsafe { vst1q_f32(all.as_mut_ptr(), v) }
            let n = to.len();
            to.copy_from_slice(&all[..n]);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> float32x4_t {
        let wide: float32x4_t;
        // SAFETY: the caller allows reading 8 bytes; `self` proves NEON.
        unsafe {
            let narrow = vld1_u8(from.cast());
            asm!("fcvtl {wide:v}.4s, {narrow:v}.4h", wide = lateout(vreg) wide, narrow = in(vreg) narrow,
                options(pure, nomem, nostack, preserves_flags));
        }
        wide
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> float32x4_t {
        // SAFETY: the caller allows reading 8 bytes, by bytes as they may be unaligned; `self`
        // proves NEON.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, shift: u32, mask: u8) -> float32x4_t {
        // SAFETY: the caller allows reading 4 bytes; `self` proves NEON.
        unsafe {
            let bytes = vreinterpret_u8_u32(vdup_n_u32(from.cast::<u32>().read_unaligned()));
            // A shift by a negative number goes to the right.
            let bytes = vand_u8(vshl_u8(bytes, vdup_n_s8(-(shift as i8))), vdup_n_u8(mask));
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> float32x4_t {
        // SAFETY: the caller allows reading 4 bytes; `self` proves NEON.
        unsafe {
            let bytes = vreinterpret_s8_u32(vdup_n_u32(from.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> float32x4_t {
        // SAFETY: the caller allows reading 16 bytes, by bytes as they may be unaligned; `self`
        // proves NEON.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: float32x4_t, to: *mut f32) {
        // SAFETY: the caller allows writing 16 bytes, by bytes as they may be unaligned; `self`
        // proves NEON.
        unsafe { vst1q_u8(to.cast(), vreinterpretq_u8_f32(v)) }
    }
    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn neg(self, a: float32x4_t) -> float32x4_t {
        op!(vnegq_f32(a))
    }
    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        op!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn select_less(self, a: float32x4_t, b: float32x4_t, yes: float32x4_t, no: float32x4_t) -> float32x4_t {
        op!(vbslq_f32(vcltq_f32(a, b), yes, no))
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, yes: float32x4_t, no: float32x4_t) -> float32x4_t {
        let inside: [u32; 4] = std::array::from_fn(|i| if from <= i && i < to { u32::MAX } else { 0 });
        // SAFETY: `inside` holds 4 values, and `self` proves NEON.
        unsafe { vbslq_f32(vld1q_u32(inside.as_ptr()), yes, no) }
    }
    #[inline(always)]
    fn exp2_of_magic(self, t: float32x4_t) -> float32x4_t {
        op!({
            let n = vshlq_n_s32::<23>(vreinterpretq_s32_f32(t));
            vreinterpretq_f32_s32(vaddq_s32(n, vdupq_n_s32(0x3f80_0000)))
        })
    }
    #[inline(always)]
    fn reciprocal_guess(self, d: float32x4_t) -> float32x4_t {
        op!(vreinterpretq_f32_u32(vsubq_u32(vdupq_n_u32(RECIPROCAL), vreinterpretq_u32_f32(d))))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: float32x4_t, to: *mut u16) {
        // SAFETY: the caller allows writing 8 bytes; `self` proves NEON.
        unsafe {
            let narrow: uint8x8_t;
            asm!("fcvtn {narrow:v}.4h, {wide:v}.4s", narrow = lateout(vreg) narrow, wide = in(vreg) v,
                options(pure, nomem, nostack, preserves_flags));
            vst1_u8(to.cast(), narrow);
        }
    }
    #[inline(always)]
    fn sum(self, v: float32x4_t) -> f32 {
        op!({
            let halves = vadd_f32(vget_low_f32(v), vget_high_f32(v));
            vget_lane_f32::<0>(halves) + vget_lane_f32::<1>(halves)
        })
    }
    #[inline(always)]
    fn maximum(self, v: float32x4_t) -> f32 {
        op!(vmaxnmvq_f32(v))
    }
}
