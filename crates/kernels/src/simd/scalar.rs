//! [`Lanes`] in plain Rust: runs on every processor.

use crate::simd::lanes::{Lanes, RECIPROCAL};

/// Plain Rust on `N` lanes, a power of 2. Four lanes are the vectors that every 64-bit processor
/// has.
#[derive(Clone, Copy)]
pub(crate) struct Scalar<const N: usize>;

/// Converts f16 bits to f32 without a branch, so that the compiler vectorises it. Exact, including
/// subnormal values.
#[inline(always)]
fn widen(h: u16) -> f32 {
    let h = u32::from(h);
    let magnitude = h & 0x7fff;
    // A product with 2^112, which is exact, moves the exponent's bias. Infinities and NaNs get the
    // full exponent.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = u32::from(magnitude >= 0x7c00) * 0x7f80_0000;
    f32::from_bits(finite.to_bits() | special | (h & 0x8000) << 16)
}

impl<const N: usize> Lanes for Scalar<N> {
    type V = [f32; N];
    const WIDTH: usize = N;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Scalar
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; N] {
        [x; N]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; N] {
        match from.first_chunk() {
            Some(all) => *all,
            None => std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0)),
        }
    }
    #[inline(always)]
    fn store(self, v: [f32; N], to: &mut [f32]) {
        match to.first_chunk_mut() {
            Some(all) => *all = v,
            None => to.iter_mut().zip(v).for_each(|(to, v)| *to = v),
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> [f32; N] {
        // SAFETY: the caller allows reading N values from `from`.
        unsafe { from.cast::<[u16; N]>().read_unaligned() }.map(widen)
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> [f32; N] {
        // SAFETY: the caller allows reading N values from `from`.
        unsafe { from.cast::<[u16; N]>().read_unaligned() }.map(|h| f32::from_bits(u32::from(h) << 16))
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> [f32; N] {
        // SAFETY: the caller allows reading N bytes from `from`.
        unsafe { from.cast::<[i8; N]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, shift: u32, mask: u8) -> [f32; N] {
        // SAFETY: the caller allows reading N bytes from `from`.
        unsafe { from.cast::<[u8; N]>().read_unaligned() }.map(|b| f32::from(b >> shift & mask))
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> [f32; N] {
        // SAFETY: the caller allows reading N values from `from`.
        unsafe { from.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: [f32; N], to: *mut f32) {
        // SAFETY: the caller allows writing N values to `to`.
        unsafe { to.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn neg(self, a: [f32; N]) -> [f32; N] {
        a.map(|a| -a)
    }
    #[inline(always)]
    fn sub(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn select_less(self, a: [f32; N], b: [f32; N], yes: [f32; N], no: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, yes: [f32; N], no: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| if from <= i && i < to { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn exp2_of_magic(self, t: [f32; N]) -> [f32; N] {
        t.map(|t| f32::from_bits((t.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
    #[inline(always)]
    fn reciprocal_guess(self, d: [f32; N]) -> [f32; N] {
        d.map(|d| f32::from_bits(RECIPROCAL.wrapping_sub(d.to_bits())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: [f32; N], to: *mut u16) {
        let narrow = v.map(|x| half::f16::from_f32(x).to_bits());
        // SAFETY: the caller allows writing N values.
        unsafe { to.cast::<[u16; N]>().write_unaligned(narrow) }
    }
    #[inline(always)]
    fn sum(self, v: [f32; N]) -> f32 {
        halve(v, |a, b| a + b)
    }
    #[inline(always)]
    fn maximum(self, v: [f32; N]) -> f32 {
        halve(v, f32::max)
    }
}

/// Combines the second half of the lanes with the first until one is left.
#[inline(always)]
fn halve<const N: usize>(mut v: [f32; N], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut left = N;
    while left > 1 {
        left /= 2;
        for i in 0..left {
            v[i] = f(v[i], v[i + left]);
        }
    }
    v[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (widen(bits), half::f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{bits:#06x}: {got}");
        }
    }
}
