//! The figures of a run: its speed, and the middle of many.

use selfspec_engine::RequestSummary;

/// Tokens a second after the first one; 0 if there was only one.
pub fn tokens_per_second(summary: &RequestSummary) -> f64 {
    if summary.completion_tokens < 2 || summary.predicted_s <= 0.0 {
        return 0.0;
    }
    (summary.completion_tokens - 1) as f64 / summary.predicted_s
}

/// The median, of two middle values their mean; 0 of no values. Sorts `values`. Shape: (sample).
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
    }
}
