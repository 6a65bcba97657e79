//! Vectors of f32, one type for each instruction set, and the arithmetic that attention and the elementwise operations share.
//!
//! A kernel is written once, generic over [`Lanes`], and compiled once for each instruction set by [`per_isa!`]. Every
//! operation here is defined lane by lane, so which lane holds a value never changes its bits; the only reductions over
//! lanes, [`Lanes::sum`] and [`Lanes::maximum`], run in a fixed order.
//!
//! Invariant: a value of a SIMD type of lanes proves that the CPU has its instructions. Only [`per_isa!`] makes
//! one, inside a function that is compiled for that instruction set.

/// A vector of [`Lanes::WIDTH`] f32 values and its operations.
///
/// Every method is inlined into the caller, which [`per_isa!`] compiles for the right instruction set.
pub(crate) trait Lanes: Copy {
    /// The vector.
    type V: Copy;
    /// Lanes in a vector; it divides 16.
    const WIDTH: usize;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// The first `WIDTH` values of `from`; lanes beyond its end are 0.
    fn load(self, from: &[f32]) -> Self::V;
    /// Writes as many lanes as `to` has room for.
    fn store(self, v: Self::V, to: &mut [f32]);
    /// `WIDTH` values of f16, widened.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` values of 2 bytes. It may be unaligned.
    unsafe fn load_f16(self, from: *const u16) -> Self::V;
    /// `WIDTH` values of i8, as f32: exact.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` bytes.
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> Self::V {
        let mut wide = [0.0; 16];
        for (i, wide) in wide[..Self::WIDTH].iter_mut().enumerate() {
            // SAFETY: the caller allows reading `WIDTH` values from `from`.
            *wide = f32::from(unsafe { *from.add(i) });
        }
        self.load(&wide)
    }
    /// `WIDTH` values.
    ///
    /// # Safety
    /// `from` must be valid for reading `WIDTH` f32. It may be unaligned.
    unsafe fn load_at(self, from: *const f32) -> Self::V;
    /// Writes all lanes.
    ///
    /// # Safety
    /// `to` must be valid for writing `WIDTH` f32. It may be unaligned.
    unsafe fn store_at(self, v: Self::V, to: *mut f32);
    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a - b.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b, correctly rounded.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c; rounded once where the instruction set has it, twice in scalar code.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger lane; `b` when either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller lane; `b` when either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// In each lane `yes` if a < b, else (also when either is NaN) `no`.
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// In lane i `yes` if `from <= i < to`, else `no`.
    fn select_range(self, from: usize, to: usize, yes: Self::V, no: Self::V) -> Self::V;
    /// 2^n for the integer n in -126..=127 that `t` = n + [`MAGIC`] holds.
    fn exp2_of_magic(self, t: Self::V) -> Self::V;
    /// 1 / d within 6%, for d from 2^-126 to 2^126: the start of [`reciprocal`].
    fn reciprocal_guess(self, d: Self::V) -> Self::V;
    /// Writes all lanes as f16, rounded to nearest, ties to even.
    ///
    /// # Safety
    /// `to` must be valid for writing `WIDTH` values of 2 bytes. It may be unaligned.
    unsafe fn store_f16(self, v: Self::V, to: *mut u16);
    /// Sum of all lanes, in a fixed order.
    fn sum(self, v: Self::V) -> f32;
    /// Largest lane. NaN lanes may be passed over.
    fn maximum(self, v: Self::V) -> f32;

    /// All lanes 0.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
}

/// 1.5 * 2^23: adding it to an x of magnitude below 2^22 rounds x to an integer (ties to even) in the low bits of the sum.
pub(crate) const MAGIC: f32 = 12_582_912.0;

/// These bits less those of a positive d are about 1 / d: the difference negates the exponent, and its low bits balance the error.
pub(crate) const RECIPROCAL: u32 = 0x7ef3_11c7;

/// Below this exp gives 0.
const EXP_LOW: f32 = -87.0;
/// Above this exp gives infinity.
const EXP_HIGH: f32 = 88.3;

/// exp of each lane, within 1 unit in the last place of the true value; the same bits in every lane, whatever its neighbours.
///
/// Below -87 the result is 0, above 88.3 infinity; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(l: L, x: L::V) -> L::V {
    // The bound is the first operand, so that a NaN in x comes through.
    let y = exp_of_negative(l, l.min(l.splat(EXP_HIGH), x));
    l.select_less(l.splat(EXP_HIGH), x, l.splat(f32::INFINITY), y)
}

/// As [`exp`], for lanes that are known not to exceed 88.3 (or are NaN).
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is 1 + r + r^2 P(r) with P of degree 4, fitted for the least relative
/// error (3e-9).
#[inline(always)]
pub(crate) fn exp_of_negative<L: Lanes>(l: L, x: L::V) -> L::V {
    const P: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_432];
    let c = l.max(l.splat(EXP_LOW), x);
    let t = l.fma(c, l.splat(std::f32::consts::LOG2_E), l.splat(MAGIC));
    let n = l.sub(t, l.splat(MAGIC));
    // ln 2 in two parts; the first has so few bits that its product with n is exact.
    let r = l.fma(n, l.splat(-0.693_359_4), c);
    let r = l.fma(n, l.splat(0.000_212_194_44), r);
    let mut p = l.splat(P[4]);
    for k in [3, 2, 1, 0] {
        p = l.fma(p, r, l.splat(P[k]));
    }
    let y = l.add(l.fma(l.mul(r, r), p, r), l.splat(1.0));
    let y = l.mul(y, l.exp2_of_magic(t));
    l.select_less(x, l.splat(EXP_LOW), l.zero(), y)
}

/// 1 / d of each lane, within 2 units in the last place, for d from 2^-126 to 2^126; NaN stays NaN. Much faster than a division.
#[inline(always)]
pub(crate) fn reciprocal<L: Lanes>(l: L, d: L::V) -> L::V {
    let minus = l.sub(l.zero(), d);
    let mut y = l.reciprocal_guess(d);
    // Newton's method squares the error: 0.06, 0.003, 0.00001, below rounding.
    for _ in 0..3 {
        y = l.mul(y, l.fma(minus, y, l.splat(2.0)));
    }
    y
}

/// Calls `f` on the vectors of three slices of one length, and writes what it gives into the third. For small `f` only: a closure that
/// the compiler does not inline would be compiled without the instruction set.
#[inline(always)]
pub(crate) fn map_into<L: Lanes>(l: L, a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(L::V, L::V, L::V) -> L::V) {
    assert!(a.len() == out.len() && b.len() == out.len());
    let (mut a, mut b, mut out) = (a.chunks_exact(L::WIDTH), b.chunks_exact(L::WIDTH), out.chunks_exact_mut(L::WIDTH));
    for ((a, b), out) in a.by_ref().zip(b.by_ref()).zip(out.by_ref()) {
        l.store(f(l.load(a), l.load(b), l.load(out)), out);
    }
    let out = out.into_remainder();
    if !out.is_empty() {
        l.store(f(l.load(a.remainder()), l.load(b.remainder()), l.load(out)), out);
    }
}

/// tanh of each lane, with an absolute error of about 1e-7. NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(l: L, x: L::V) -> L::V {
    // 1 - 2 / (e^2x + 1): right at both ends, where e^2x is 0 or infinite.
    let e = exp(l, l.add(x, x));
    l.sub(l.splat(1.0), l.div(l.splat(2.0), l.add(e, l.splat(1.0))))
}

/// Portable code: four lanes, which is what every 64-bit CPU has.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// f16 bits to f32 without a branch, so that the compiler can do four at once. Exact, subnormal values included.
#[inline(always)]
fn widen(h: u16) -> f32 {
    let h = u32::from(h);
    let magnitude = h & 0x7fff;
    // The exponent's bias is moved by a product with 2^112, which is exact; infinities and NaNs get the full exponent.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = u32::from(magnitude >= 0x7c00) * 0x7f80_0000;
    f32::from_bits(finite.to_bits() | special | (h & 0x8000) << 16)
}

impl Lanes for Scalar {
    type V = [f32; 4];
    const WIDTH: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; 4] {
        match from.first_chunk() {
            Some(all) => *all,
            None => std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0)),
        }
    }
    #[inline(always)]
    fn store(self, v: [f32; 4], to: &mut [f32]) {
        match to.first_chunk_mut() {
            Some(all) => *all = v,
            None => to.iter_mut().zip(v).for_each(|(to, v)| *to = v),
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> [f32; 4] {
        // SAFETY: the caller allows reading 4 values from `from`.
        unsafe { from.cast::<[u16; 4]>().read_unaligned() }.map(widen)
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> [f32; 4] {
        // SAFETY: the caller allows reading 4 values from `from`.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: [f32; 4], to: *mut f32) {
        // SAFETY: the caller allows writing 4 values to `to`.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn select_less(self, a: [f32; 4], b: [f32; 4], yes: [f32; 4], no: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, yes: [f32; 4], no: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if from <= i && i < to { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn exp2_of_magic(self, t: [f32; 4]) -> [f32; 4] {
        t.map(|t| f32::from_bits((t.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
    #[inline(always)]
    fn reciprocal_guess(self, d: [f32; 4]) -> [f32; 4] {
        d.map(|d| f32::from_bits(RECIPROCAL.wrapping_sub(d.to_bits())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: [f32; 4], to: *mut u16) {
        let narrow = v.map(|x| half::f16::from_f32(x).to_bits());
        // SAFETY: the caller allows writing 8 bytes.
        unsafe { to.cast::<[u16; 4]>().write_unaligned(narrow) }
    }
    #[inline(always)]
    fn sum(self, v: [f32; 4]) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
    #[inline(always)]
    fn maximum(self, v: [f32; 4]) -> f32 {
        v[0].max(v[1]).max(v[2].max(v[3]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use crate::simd::x86::{Avx2, Avx512};

/// Makes a function that runs a generic kernel with the lanes of an instruction set: `name(isa, arguments...)`.
///
/// The kernel is compiled once for each set, with its features on, and must be `#[inline(always)]` all the way down: what is
/// not inlined would be compiled without them.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$e:ident: $bound:ident $(, const $n:ident: usize)?>)? ($($arg:ident: $ty:ty),* $(,)?) = |$l:ident| $body:expr) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$e: $bound $(, const $n: usize)?>)? (isa: $crate::simd::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2 $(<$e: $bound $(, const $n: usize)?>)? ($($arg: $ty),*) {
                // SAFETY: this function has these features, so whoever calls it has seen to it that the CPU has them.
                let $l = unsafe { $crate::simd::Avx2::assume() };
                $body
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
            fn avx512 $(<$e: $bound $(, const $n: usize)?>)? ($($arg: $ty),*) {
                // SAFETY: this function has these features, so whoever calls it has seen to it that the CPU has them.
                let $l = unsafe { $crate::simd::Avx512::assume() };
                $body
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` other than scalar exists only where the CPU has its features.
                $crate::simd::Isa::Avx2 => unsafe { avx2 $(::<$e $(, $n)?>)? ($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Isa::Avx512Vnni => unsafe { avx512 $(::<$e $(, $n)?>)? ($($arg),*) },
                #[allow(unreachable_patterns)]
                _ => {
                    let $l = $crate::simd::Scalar;
                    $body
                }
            }
        }
    };
}
pub(crate) use per_isa;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;

    per_isa! {
        fn exp_all(x: &mut [f32]) = |l| each(l, x, exp)
    }
    per_isa! {
        fn tanh_all(x: &mut [f32]) = |l| each(l, x, tanh)
    }

    #[inline(always)]
    fn each<L: Lanes>(l: L, x: &mut [f32], f: impl Fn(L, L::V) -> L::V) {
        for x in x.chunks_mut(L::WIDTH) {
            l.store(f(l, l.load(x)), x);
        }
    }

    #[test]
    fn exp_is_right_to_an_ulp_and_the_same_in_every_lane() {
        for isa in Isa::available() {
            let x: Vec<f32> = (-87_000..88_000).step_by(7).map(|i| i as f32 / 1000.0).collect();
            let mut y = x.clone();
            exp_all(isa, &mut y);
            for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                let expected = f64::from(*x).exp();
                let error = (f64::from(*y) - expected).abs() / expected;
                assert!(error < 1.5e-7, "{isa} exp({x}) = {y}, relative error {error:e}");
                if i % 50 == 0 {
                    // Any lane, any neighbours.
                    let mut lanes = [1.0f32; 19];
                    lanes[i / 50 % 19] = *x;
                    exp_all(isa, &mut lanes);
                    assert_eq!(lanes[i / 50 % 19].to_bits(), y.to_bits(), "{isa} exp({x})");
                }
            }
            let mut ends = [0.0, -0.0, -88.0, f32::NEG_INFINITY, 89.0, f32::INFINITY, f32::NAN];
            exp_all(isa, &mut ends);
            assert_eq!(ends[..6], [1.0, 1.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY]);
            assert!(ends[6].is_nan());
        }
    }

    per_isa! {
        fn reciprocals(x: &mut [f32]) = |l| each(l, x, reciprocal)
    }

    #[test]
    fn reciprocals_are_right_to_two_ulps() {
        for isa in Isa::available() {
            let x: Vec<f32> = (0..40_000).map(|i| 1.000_31f32.powi(i % 250) * 2f32.powi(i % 250 - 125)).collect();
            let mut y = x.clone();
            reciprocals(isa, &mut y);
            for (x, y) in x.iter().zip(y) {
                let error = (f64::from(y) * f64::from(*x) - 1.0).abs();
                assert!(error < 2.4e-7, "{isa}: 1 / {x} = {y}, relative error {error:e}");
            }
            let mut nan = [f32::NAN];
            reciprocals(isa, &mut nan);
            assert!(nan[0].is_nan());
        }
    }

    #[test]
    fn tanh_is_right_at_both_ends_and_between() {
        for isa in Isa::available() {
            let x: Vec<f32> = (-2000..2000).map(|i| i as f32 / 100.0).chain([1e30, -1e30]).collect();
            let mut y = x.clone();
            tanh_all(isa, &mut y);
            for (x, y) in x.iter().zip(y) {
                assert!((f64::from(y) - f64::from(*x).tanh()).abs() < 3e-7, "{isa} tanh({x}) = {y}");
            }
        }
    }

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (widen(bits), half::f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{bits:#06x}: {got}");
        }
    }
}
