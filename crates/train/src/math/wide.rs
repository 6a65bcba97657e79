//! Loops over rows of floats, compiled for the processor's widest vectors by `pulp`.
//!
//! A plain build targets any x86-64. The same plain Rust, inlined into a function compiled for AVX2
//! or AVX-512, runs several times as fast. Sums are kept in [`LANES`] partial sums, in a fixed
//! order.

/// Partial sums of a reduction.
pub(crate) const LANES: usize = 16;

/// Defines functions whose bodies are compiled once for each instruction set. The set is chosen at
/// run time.
macro_rules! wide {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident<'a>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => { $(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name<'a>($($arg: $ty),*) $(-> $ret)? {
            struct Job<'a> {
                $($arg: $ty,)*
                life: std::marker::PhantomData<&'a ()>,
            }
            impl<'a> pulp::NullaryFnOnce for Job<'a> {
                type Output = $crate::math::wide::result!($($ret)?);
                #[inline(always)]
                fn call(self) -> Self::Output {
                    let Job { $($arg,)* life: _ } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Job { $($arg,)* life: std::marker::PhantomData })
        }
    )* };
}
macro_rules! result {
    () => {
        ()
    };
    ($ret:ty) => {
        $ret
    };
}
pub(crate) use {result, wide};

/// e^x within 2 units in the last place; 0 below -87, and the value of 88 above that.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4; // few bits, so that n * LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x > -87.0 { x } else { -87.0 };
    let bounded = if bounded < 88.0 { bounded } else { 88.0 };
    let shifted = bounded * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = bounded - n * LN2_HIGH - n * LN2_LOW; // |r| <= ln 2 / 2
    // Taylor series to the 7th power: the remainder is below r^8 / 8!, under 1e-8.
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let power = f32::from_bits((shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127)) << 23);
    // A NaN must stay NaN: comparisons with it are false.
    if x < -87.0 {
        0.0
    } else if x.is_nan() {
        x
    } else {
        p * power
    }
}

/// The largest value of a row.
#[inline(always)]
pub(crate) fn top(row: &[f32]) -> f32 {
    let mut tops = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (top, x) in tops.iter_mut().zip(chunk) {
            *top = if *x > *top { *x } else { *top };
        }
    }
    tops.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}

/// Sum of a row.
#[inline(always)]
pub(crate) fn sum(row: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
    }
    sums.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Product of two vectors of one length.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f32>()
}

/// Sum of the products of three vectors of one length, value by value.
#[inline(always)]
pub(crate) fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let ((a, rest_a), (b, rest_b), (c, rest_c)) =
        (a.as_chunks::<LANES>(), b.as_chunks::<LANES>(), c.as_chunks::<LANES>());
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for (((sum, a), b), c) in sums.iter_mut().zip(a).zip(b).zip(c) {
            *sum += a * b * c;
        }
    }
    let rest = rest_a.iter().zip(rest_b).zip(rest_c).map(|((a, b), c)| a * b * c).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

wide! {
    /// `to += factor * from`.
    pub(crate) fn add_scaled<'a>(to: &'a mut [f32], factor: f32, from: &'a [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
    }

    /// `to += from`.
    pub(crate) fn add<'a>(to: &'a mut [f32], from: &'a [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }

    /// Adds every row of `rows` to `to`. Shape: (row, to.len()).
    pub(crate) fn add_rows<'a>(to: &'a mut [f32], rows: &'a [f32]) {
        for row in rows.chunks_exact(to.len()) {
            to.iter_mut().zip(row).for_each(|(to, from)| *to += from);
        }
    }

    /// Adds `row` to every row of `rows`. Shape: (row, row.len()).
    pub(crate) fn add_to_rows<'a>(rows: &'a mut [f32], row: &'a [f32]) {
        for to in rows.chunks_exact_mut(row.len()) {
            to.iter_mut().zip(row).for_each(|(to, from)| *to += from);
        }
    }

    /// Sum of squares, in blocks of 4096 whose sums are added in f64.
    pub(crate) fn sum_of_squares<'a>(x: &'a [f32]) -> f64 {
        x.chunks(4096).map(|x| f64::from(dot(x, x))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_that_of_f64_and_lets_nan_through() {
        for i in -8700..8800 {
            let x = i as f32 / 100.0;
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) - expected).abs() <= 3e-7 * expected, "{x}: {} for {expected}", exp(x));
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert!(exp(1e9).is_finite() && exp(f32::INFINITY) > 1e38);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_are_those_of_f64() {
        for len in [0, 1, 15, 16, 17, 100, 5000] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            let expected: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!((sum_of_squares(&x) - expected).abs() <= 1e-5 * expected.max(1e-9), "{len}");
            let mut rows = vec![1.0; 3 * len.max(1)];
            let row: Vec<f32> = (0..len.max(1)).map(|i| i as f32).collect();
            add_to_rows(&mut rows, &row);
            let mut total = vec![0.5; row.len()];
            add_rows(&mut total, &rows);
            assert!(total.iter().enumerate().all(|(i, t)| *t == 3.5 + 3.0 * i as f32), "{len}");
        }
    }
}
