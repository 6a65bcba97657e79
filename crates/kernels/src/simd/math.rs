//! Functions that several kernels share, generic over [`Lanes`].

use crate::simd::lanes::{Lanes, MAGIC};

/// Below this exp gives 0.
const EXP_LOW: f32 = -87.0;

/// exp of each lane, which must not exceed 88.3, within 1 unit in the last place of the true value.
/// Below -87 the result is 0; NaN stays NaN. A lane's bits depend on that lane only.
///
/// Method: x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is 1 + r + r^2 P(r) with P of degree 4,
/// fitted for the least relative error (3e-9).
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

/// 1 / d of each lane, within 2 units in the last place, for d from 2^-126 to 2^126; NaN stays NaN.
/// Much faster than a division.
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

/// Calls `f` on the vectors of three slices of one length, and writes its result to the third. For
/// small `f` only: a closure that the compiler does not inline is compiled without the instruction
/// set.
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

/// The largest magnitude of `values`, as bits; magnitudes order as their bits do, with infinity and
/// then NaN above all numbers.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> u32 {
    values.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::dispatch::per_isa;
    use crate::simd::isa::Isa;

    per_isa! {
        fn exp_all(x: &mut [f32]) = |l| each(l, x, exp_of_negative)
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
            let mut ends = [0.0, -0.0, -88.0, f32::NEG_INFINITY, f32::NAN];
            exp_all(isa, &mut ends);
            assert_eq!(ends[..4], [1.0, 1.0, 0.0, 0.0]);
            assert!(ends[4].is_nan());
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
}
