//! Byte products in NEON with the dot product extension: 4 lanes.
//!
//! The language has no stable name yet for the dot product, so that instruction is written out.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::matmul::bytes::ByteLanes;
use crate::matmul::tile::kernel;
use crate::simd::{Isa, Neon};

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

impl ByteLanes for Neon {
    const TILE: usize = Isa::Neon.tile_rows();
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 8;
    type B = uint8x16_t;
    type I = int32x4_t;

    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> uint8x16_t {
        // SAFETY: `self` proves the instruction set.
        unsafe { vld1q_u8(p) }
    }
    #[inline(always)]
    fn shr_and(self, b: uint8x16_t, n: u32, mask: u8) -> uint8x16_t {
        // A shift by a negative number goes to the right.
        // SAFETY: `self` proves the instruction set.
        unsafe { vandq_u8(vshlq_u8(b, vdupq_n_s8(-(n as i8))), vdupq_n_u8(mask)) }
    }
    #[inline(always)]
    fn shl_and(self, b: uint8x16_t, n: u32, mask: u8) -> uint8x16_t {
        // SAFETY: `self` proves the instruction set.
        unsafe { vandq_u8(vshlq_u8(b, vdupq_n_s8(n as i8)), vdupq_n_u8(mask)) }
    }
    #[inline(always)]
    fn or(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: `self` proves the instruction set.
        unsafe { vorrq_u8(a, b) }
    }

    #[inline(always)]
    fn int_zero(self) -> int32x4_t {
        // SAFETY: `self` proves the instruction set.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    fn int_splat_shifted(self, x: i32, by: i32) -> int32x4_t {
        // A shift by a negative number goes to the right.
        // SAFETY: `self` proves the instruction set.
        unsafe { vshlq_s32(vdupq_n_s32(x), vdupq_n_s32(by)) }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        self,
        sums: &mut [[int32x4_t; M]; N],
        u: &[[uint8x16_t; J]; N],
        _bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        // Values of up to 6 bits are the same as signed bytes. A vector of activations holds the
        // quads of 4 vectors of weights.
        for i in 0..N {
            for (j, u) in u[i].chunks_exact(4).enumerate() {
                for (sum, q) in sums[i].iter_mut().zip(&q[i]) {
                    // SAFETY: `self` proves the instruction set; `q` is 4 * J long.
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
        self,
        sums: &mut [[int32x4_t; M]; N],
        u: &[[uint8x16_t; 8]; N],
        q: &[[*const i8; M]; N],
        _neg_sum: &[[*const i32; M]; N],
    ) {
        // SAFETY: `self` proves the instruction set. With its highest bit turned a byte is its
        // value less 128, as a signed one.
        unsafe {
            let mut signed = *u;
            for u in signed.as_flattened_mut() {
                *u = veorq_u8(*u, vdupq_n_u8(0x80));
            }
            *sums = [[self.int_zero(); M]; N];
            self.dot(sums, &signed, 8, q);
        }
    }
    #[inline(always)]
    fn to_float(self, i: int32x4_t) -> float32x4_t {
        // SAFETY: `self` proves the instruction set.
        unsafe { vcvtq_f32_s32(i) }
    }
}
