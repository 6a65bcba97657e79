//! Pearson's chi-square test of counts against exact probabilities.

/// Cells expected to hold fewer than this are put together, as the test's approximation asks.
const FEWEST_EXPECTED: f64 = 5.0;

/// A p-value below this is a failure: one in a hundred thousand tests of a right sampler.
pub const SIGNIFICANCE: f64 = 1e-5;

/// The outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChiSquareTest {
    /// Sum over the cells of (observed - expected)^2 / expected.
    pub statistic: f64,
    /// Degrees of freedom: cells less one.
    pub freedom: usize,
    /// Probability of a statistic at least as high if the counts are from the distribution; 0 if an
    /// impossible thing was counted.
    pub p_value: f64,
    /// Counts of what has probability 0.
    pub impossible: u64,
}

impl ChiSquareTest {
    /// Tests `cells` of (count, probability); the probabilities add up to 1.
    pub fn of(cells: impl Iterator<Item = (u64, f64)> + Clone) -> ChiSquareTest {
        let draws: u64 = cells.clone().map(|(count, _)| count).sum();
        let (mut statistic, mut used, mut impossible) = (0.0, 0usize, 0);
        let mut rest = (0u64, 0.0f64);
        let mut add = |count: u64, expected: f64| {
            statistic += (count as f64 - expected).powi(2) / expected;
            used += 1;
        };
        for (count, p) in cells {
            let expected = p * draws as f64;
            if p <= 0.0 {
                impossible += count;
            } else if expected < FEWEST_EXPECTED {
                rest = (rest.0 + count, rest.1 + expected);
            } else {
                add(count, expected);
            }
        }
        if rest.1 >= FEWEST_EXPECTED || (rest.1 > 0.0 && rest.0 as f64 > rest.1 + 10.0 * FEWEST_EXPECTED) {
            add(rest.0, rest.1);
        }
        let freedom = used.saturating_sub(1);
        let p_value = if impossible > 0 { 0.0 } else { survival(statistic, freedom) };
        ChiSquareTest { statistic, freedom, p_value, impossible }
    }

    /// Whether the counts may well be from the distribution.
    pub fn passes(&self) -> bool {
        self.p_value >= SIGNIFICANCE
    }
}

/// Probability that a chi-square variable of `freedom` degrees is at least `x`.
fn survival(x: f64, freedom: usize) -> f64 {
    if freedom == 0 || x <= 0.0 {
        return 1.0;
    }
    upper_gamma(freedom as f64 / 2.0, x / 2.0)
}

/// The regularised upper incomplete gamma function Q(a, x): by the series of P below a + 1, by the
/// continued fraction (modified Lentz) above. (Abramowitz and Stegun 6.5.29 and 6.5.31.)
fn upper_gamma(a: f64, x: f64) -> f64 {
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return (1.0 - scale * sum).max(0.0);
    }
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / tiny;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..10_000 {
        let an = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = 1.0 / nonzero(an * d + b, tiny);
        c = nonzero(b + an / c, tiny);
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (scale * h).clamp(0.0, 1.0)
}

fn nonzero(v: f64, tiny: f64) -> f64 {
    if v.abs() < tiny { tiny } else { v }
}

/// ln of the gamma function for x > 0: Stirling's series above 10, reached by recurrence.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let i = 1.0 / x;
    let i2 = i * i;
    let series = i * (1.0 / 12.0 - i2 * (1.0 / 360.0 - i2 * (1.0 / 1260.0 - i2 * (1.0 / 1680.0 - i2 / 1188.0))));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // (freedom, statistic, probability), from the usual tables.
        for (freedom, x, p) in [
            (1, 3.841, 0.05),
            (1, 6.635, 0.01),
            (9, 16.919, 0.05),
            (9, 21.666, 0.01),
            (99, 123.225, 0.05),
            (10, 29.588, 0.001),
        ] {
            let got = survival(x, freedom);
            assert!((got / p - 1.0).abs() < 2e-3, "{freedom} degrees at {x}: {got}, expected {p}");
        }
        assert!((survival(2.0, 2) - (-1.0f64).exp()).abs() < 1e-12, "two degrees are an exponential");
    }

    #[test]
    fn fair_counts_pass_and_loaded_ones_fail() {
        let fair = [(1010, 0.1), (2003, 0.2), (6987, 0.7)];
        assert!(ChiSquareTest::of(fair.into_iter()).passes());
        let loaded = [(1250, 0.1), (2000, 0.2), (6750, 0.7)];
        assert!(!ChiSquareTest::of(loaded.into_iter()).passes());
        let impossible = [(1, 0.0), (5000, 0.5), (4999, 0.5)];
        let got = ChiSquareTest::of(impossible.into_iter());
        assert!(!got.passes() && got.impossible == 1);
    }
}
