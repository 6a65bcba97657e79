//! Byte products in plain Rust, one lane at a time.

use crate::matmul::bytes::ByteLanes;
use crate::matmul::tile::kernel;
use crate::simd::{Isa, Scalar};

kernel!(Scalar<1>, [], [1 2 3 4], [1 2 3 4]);

impl ByteLanes for Scalar<1> {
    const TILE: usize = Isa::Scalar.tile_rows();
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 4;
    type B = [u8; 4];
    type I = i32;

    #[inline(always)]
    unsafe fn bytes(self, p: *const u8) -> [u8; 4] {
        // SAFETY: the caller's; byte arrays have no alignment.
        unsafe { p.cast::<[u8; 4]>().read() }
    }
    #[inline(always)]
    fn shr_and(self, b: [u8; 4], n: u32, mask: u8) -> [u8; 4] {
        b.map(|b| b >> n & mask)
    }
    #[inline(always)]
    fn shl_and(self, b: [u8; 4], n: u32, mask: u8) -> [u8; 4] {
        b.map(|b| b << n & mask)
    }
    #[inline(always)]
    fn or(self, a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
        [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
    }

    #[inline(always)]
    fn int_zero(self) -> i32 {
        0
    }
    #[inline(always)]
    fn int_splat_shifted(self, x: i32, by: i32) -> i32 {
        if by >= 0 { x << by } else { x >> -by }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
        self,
        sums: &mut [[i32; M]; N],
        u: &[[[u8; 4]; J]; N],
        _bits: u32,
        q: &[[*const i8; M]; N],
    ) {
        for i in 0..N {
            for (sum, q) in sums[i].iter_mut().zip(&q[i]) {
                // SAFETY: `q` is 4 * J long.
                let q = unsafe { std::slice::from_raw_parts(*q, 4 * J) };
                let u = u[i].as_flattened();
                *sum = u.iter().zip(q).fold(*sum, |sum, (u, q)| sum + i32::from(*u) * i32::from(*q));
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_128<const M: usize, const N: usize>(
        self,
        sums: &mut [[i32; M]; N],
        u: &[[[u8; 4]; 8]; N],
        q: &[[*const i8; M]; N],
        neg_sum: &[[*const i32; M]; N],
    ) {
        // SAFETY: the caller's.
        unsafe {
            for (sum, neg) in sums.as_flattened_mut().iter_mut().zip(neg_sum.as_flattened()) {
                *sum = neg.read();
            }
            self.dot(sums, u, 8, q);
        }
    }
    #[inline(always)]
    fn to_float(self, i: i32) -> [f32; 1] {
        [i as f32]
    }
}
