//! The matrix kernels' operations in plain Rust, one lane at a time.

use half::{bf16, f16};

use crate::simd::Simd;

/// One lane, no special instructions.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// # Safety
/// `p` points to `N` bytes.
#[inline(always)]
unsafe fn read<const N: usize>(p: *const u8) -> [u8; N] {
    // SAFETY: the caller's; byte arrays have no alignment.
    unsafe { p.cast::<[u8; N]>().read() }
}

impl Simd for Scalar {
    const LANES: usize = 1;
    const TILE: usize = 4;
    const BLOCKS: usize = 1;
    const FLOAT_TILE: usize = 4;
    type B = [u8; 4];
    type I = i32;
    type F = f32;

    #[inline(always)]
    unsafe fn bytes(p: *const u8) -> [u8; 4] {
        // SAFETY: the caller's.
        unsafe { read(p) }
    }
    #[inline(always)]
    unsafe fn shr_and(b: [u8; 4], n: u32, mask: u8) -> [u8; 4] {
        b.map(|b| b >> n & mask)
    }
    #[inline(always)]
    unsafe fn shl_and(b: [u8; 4], n: u32, mask: u8) -> [u8; 4] {
        b.map(|b| b << n & mask)
    }
    #[inline(always)]
    unsafe fn or(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
        [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
    }

    #[inline(always)]
    unsafe fn int_zero() -> i32 {
        0
    }
    #[inline(always)]
    unsafe fn int_splat_shifted(p: *const i32, by: i32) -> i32 {
        // SAFETY: the caller's.
        let i = unsafe { p.read() };
        if by >= 0 { i << by } else { i >> -by }
    }
    #[inline(always)]
    unsafe fn dot<const M: usize, const N: usize, const J: usize>(
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
            Self::dot(sums, u, 8, q);
        }
    }
    #[inline(always)]
    unsafe fn to_float(i: i32) -> f32 {
        i as f32
    }

    #[inline(always)]
    unsafe fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> f32 {
        // SAFETY: the caller's.
        unsafe { p.read() }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { f32::from_le_bytes(read(p)) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { f16::from_le_bytes(read(p)).to_f32_const() }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { bf16::from_le_bytes(read(p)).to_f32() }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8, n: u32, mask: u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { f32::from(p.read() >> n & mask) }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { f32::from(p.cast::<i8>().read()) }
    }
    #[inline(always)]
    unsafe fn add(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    unsafe fn mul(a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    unsafe fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    unsafe fn neg(a: f32) -> f32 {
        -a
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: f32) {
        // SAFETY: the caller's.
        unsafe { p.write(v) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn prefetch_far(_: *const u8) {}
}
