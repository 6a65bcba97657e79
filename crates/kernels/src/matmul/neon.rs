//! The matrix kernels' operations in NEON with the dot product extension: 4 lanes.
//!
//! The language has no stable names yet for the dot product and for f16, so those two instructions are written out.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::matmul::tile::kernel;
use crate::simd::Simd;

/// NEON with the dot product extension (ARMv8.2).
#[derive(Clone, Copy)]
pub(crate) struct Neon;

kernel!(Neon, ["neon,dotprod"], [1 2 3 4 5 6 7 8], [1 2 3 4 5 6 7 8]);

/// `$sum` plus, in each lane, the products of 4 signed bytes of `$u` with quad `$quad` of `$q`.
macro_rules! sdot {
    ($sum:expr, $u:expr, $q:expr, $quad:literal) => {
        asm!(
            ".arch_extension dotprod",
            concat!("sdot {sum:v}.4s, {u:v}.16b, {q:v}.4b[", $quad, "]"),
            sum = inout(vreg) $sum,
            u = in(vreg) $u,
            q = in(vreg) $q,
            options(pure, nomem, nostack, preserves_flags),
        )
    };
}

// SAFETY (all functions): the instruction set and the pointers are the caller's to vouch for, see `Simd`.
impl Simd for Neon {
    const LANES: usize = 4;
    const TILE: usize = 8;
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 8;
    type B = uint8x16_t;
    type I = int32x4_t;
    type F = float32x4_t;

    #[inline(always)]
    unsafe fn bytes(p: *const u8) -> uint8x16_t {
        // SAFETY: see above.
        unsafe { vld1q_u8(p) }
    }
    #[inline(always)]
    unsafe fn shr_and(b: uint8x16_t, n: u32, mask: u8) -> uint8x16_t {
        // A shift by a negative number goes to the right.
        // SAFETY: see above.
        unsafe { vandq_u8(vshlq_u8(b, vdupq_n_s8(-(n as i8))), vdupq_n_u8(mask)) }
    }
    #[inline(always)]
    unsafe fn shl_and(b: uint8x16_t, n: u32, mask: u8) -> uint8x16_t {
        // SAFETY: see above.
        unsafe { vandq_u8(vshlq_u8(b, vdupq_n_s8(n as i8)), vdupq_n_u8(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: see above.
        unsafe { vorrq_u8(a, b) }
    }

    #[inline(always)]
    unsafe fn int_zero() -> int32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    unsafe fn int_splat_shifted(p: *const i32, by: i32) -> int32x4_t {
        // A shift by a negative number goes to the right.
        // SAFETY: see above.
        unsafe { vshlq_s32(vdupq_n_s32(p.read()), vdupq_n_s32(by)) }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        sums: &mut [[int32x4_t; M]; N],
        u: &[[uint8x16_t; J]; N],
        _bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        // Values of up to 6 bits are the same as signed bytes. A vector of activations holds the quads of 4 vectors of weights.
        for i in 0..N {
            for (j, u) in u[i].chunks_exact(4).enumerate() {
                for (sum, q) in sums[i].iter_mut().zip(&q[i]) {
                    // SAFETY: see above; `q` is 4 * J long.
                    unsafe {
                        let q = vld1q_s8(q.add(16 * j));
                        sdot!(*sum, u[0], q, 0);
                        sdot!(*sum, u[1], q, 1);
                        sdot!(*sum, u[2], q, 2);
                        sdot!(*sum, u[3], q, 3);
                    }
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_128<const M: usize, const N: usize>(
        sums: &mut [[int32x4_t; M]; N],
        u: &[[uint8x16_t; 8]; N],
        q: &[[*const i8; M]; N],
        _neg_sum: &[[*const i32; M]; N],
    ) {
        // SAFETY: see above. With its highest bit turned a byte is its value less 128, as a signed one.
        unsafe {
            let mut signed = *u;
            for u in signed.as_flattened_mut() {
                *u = veorq_u8(*u, vdupq_n_u8(0x80));
            }
            *sums = [[Self::int_zero(); M]; N];
            Self::dot(sums, &signed, 8, q);
        }
    }
    #[inline(always)]
    unsafe fn to_float(i: int32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvtq_f32_s32(i) }
    }

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_f32(0.0) }
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_f32(p.read()) }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const u8) -> float32x4_t {
        // SAFETY: see above; bytes need no alignment.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(p)) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> float32x4_t {
        let wide: float32x4_t;
        // SAFETY: see above.
        unsafe {
            let narrow = vld1_u8(p);
            asm!("fcvtl {wide:v}.4s, {narrow:v}.4h", wide = lateout(vreg) wide, narrow = in(vreg) narrow,
                options(pure, nomem, nostack, preserves_flags));
        }
        wide
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p)))) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8, n: u32, mask: u8) -> float32x4_t {
        // SAFETY: see above.
        unsafe {
            let bytes = vreinterpret_u8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            let bytes = vand_u8(vshl_u8(bytes, vdup_n_s8(-(n as i8))), vdup_n_u8(mask));
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> float32x4_t {
        // SAFETY: see above.
        unsafe {
            let bytes = vreinterpret_s8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn neg(a: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vnegq_f32(a) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: float32x4_t) {
        // SAFETY: see above.
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a prefetch takes any address.
        unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        // SAFETY: as above.
        unsafe { asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
}
