//! What the regression run of `train layer-skip` says: perplexity before and after, and whether the full pass's is still good.

use selfspec_train::{ExitPerplexity, Perplexities};

use crate::output;

/// The table of the readings before and after.
pub(crate) fn table(before: &Perplexities, after: &Perplexities) -> String {
    let title = ["held-out text", "perplexity before", "after", "change", "guess of all layers before", "after"];
    let mut rows = vec![title.map(str::to_owned).to_vec()];
    let last = before.readings.len() - 1;
    for (i, (old, new)) in before.readings.iter().zip(&after.readings).enumerate() {
        let share =
            |reading: &ExitPerplexity| if i == last { String::new() } else { format!("{:.3}", reading.agreement) };
        rows.push(vec![
            if i == last { format!("all {} layers", old.layers) } else { format!("exit after {}", old.layers) },
            format!("{:.3}", old.perplexity),
            format!("{:.3}", new.perplexity),
            format!("{:+.1}%", change(old, new)),
            share(old),
            share(new),
        ]);
    }
    format!("{}\n{} tokens\n", output::table(&rows, &[1, 2, 3, 4, 5]), before.tokens)
}

/// By how many percent the perplexity changed.
fn change(before: &ExitPerplexity, after: &ExitPerplexity) -> f64 {
    (after.perplexity / before.perplexity - 1.0) * 100.0
}

/// Why the result is not good: the full pass's perplexity rose by more than `tolerance` percent.
pub(crate) fn risen(before: &Perplexities, after: &Perplexities, tolerance: f32) -> Option<String> {
    let (old, new) = (before.full(), after.full());
    let change = change(old, new);
    // What is not a number is not good either.
    if change <= f64::from(tolerance) {
        return None;
    }
    Some(format!(
        "the full pass's perplexity rose from {:.3} to {:.3}, by {change:.1}%, beyond the tolerance of {tolerance}%: the result is not good",
        old.perplexity, new.perplexity
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(full: f64) -> Perplexities {
        let reading = |layers, perplexity, agreement| ExitPerplexity { layers, perplexity, agreement };
        Perplexities { readings: vec![reading(4, 30.0, 0.5), reading(8, full, 1.0)], tokens: 100 }
    }

    #[test]
    fn a_rise_beyond_the_tolerance_is_refused() {
        assert_eq!(risen(&of(10.0), &of(10.19), 2.0), None);
        assert_eq!(risen(&of(10.0), &of(9.0), 0.0), None);
        let why = risen(&of(10.0), &of(10.5), 2.0).expect("five percent");
        assert!(why.starts_with("the full pass's perplexity rose from 10.000 to 10.500, by 5.0%, beyond"), "{why}");
        assert!(risen(&of(10.0), &of(f64::NAN), 2.0).is_some() && risen(&of(10.0), &of(f64::INFINITY), 2.0).is_some());
    }

    #[test]
    fn the_table_has_a_line_for_each_reading() {
        let table = table(&of(10.0), &of(9.5));
        assert!(table.contains("exit after 4") && table.contains("all 8 layers") && table.contains("-5.0%"), "{table}");
    }
}
