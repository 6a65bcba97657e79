//! Acceptance of drafts by their place in the round, and the speed-up that it promises at given
//! costs.

use selfspec_speculate::{PositionStats, SpecStats};

/// Judged drafts from which a share of accepted ones says something.
pub const ENOUGH_JUDGED: u64 = 20;
/// Longest draft that is considered, in tokens.
pub const LONGEST_CONSIDERED: usize = 8;

/// Acceptance at each place of the round, given that the drafts before it were accepted, as far as
/// enough drafts were judged. Shape: (place).
pub fn acceptance_by_place(stats: &SpecStats) -> Vec<f64> {
    let measured = |p: &&PositionStats| p.judged >= ENOUGH_JUDGED;
    stats.by_position.iter().take_while(measured).map(|p| p.accepted as f64 / p.judged as f64).collect()
}

/// Acceptance at a place of the round, as [`acceptance_by_place`] has it; beyond the last measured
/// place as there, and 0 if none was measured.
pub fn acceptance_at(stats: &SpecStats, place: usize) -> f64 {
    let places = acceptance_by_place(stats);
    places.get(place).or(places.last()).copied().unwrap_or(0.0)
}

/// The speed-up over plain decoding that rounds of `k` drafts promise: tokens of a round over its
/// cost.
///
/// `c`: cost of a draft step over that of a plain step. `b`: costs of verifying m rows over that of
/// one, shape: (m - 1), with at least k + 1 of them. `accepted`: acceptance at each place of the
/// round.
pub fn promised_speedup(c: f64, b: &[f64], k: usize, accepted: &dyn Fn(usize) -> f64) -> f64 {
    let (mut tokens, mut reached) = (1.0, 1.0);
    for place in 0..k {
        reached *= accepted(place);
        tokens += reached;
    }
    tokens / (c * k as f64 + b[k])
}

/// The draft length, at most [`LONGEST_CONSIDERED`], that promises the highest speed-up, and that
/// speed-up. Arguments as of [`promised_speedup`]; `b` has at least `LONGEST_CONSIDERED + 1`
/// values.
pub fn best_draft_len(c: f64, b: &[f64], accepted: &dyn Fn(usize) -> f64) -> (usize, f64) {
    let all = (1..=LONGEST_CONSIDERED).map(|k| (k, promised_speedup(c, b, k, accepted)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_drafts_are_as_long_as_possible_and_dear_ones_short() {
        let b = [1.0; LONGEST_CONSIDERED + 1];
        let (k, speedup) = best_draft_len(0.0, &b, &|_| 1.0);
        assert_eq!((k, speedup), (8, 9.0));
        assert_eq!(promised_speedup(0.5, &b, 1, &|_| 0.5), 1.0);
        assert_eq!(best_draft_len(0.9, &b, &|_| 0.3).0, 1);
    }

    #[test]
    fn places_end_where_too_few_drafts_were_judged() {
        let mut stats = SpecStats::default();
        (stats.by_position[0].accepted, stats.by_position[0].judged) = (15, 30);
        (stats.by_position[1].accepted, stats.by_position[1].judged) = (12, ENOUGH_JUDGED);
        (stats.by_position[2].accepted, stats.by_position[2].judged) = (9, ENOUGH_JUDGED - 1);
        assert_eq!(acceptance_by_place(&stats), [0.5, 0.6]);
        assert_eq!([0, 1, 7].map(|place| acceptance_at(&stats, place)), [0.5, 0.6, 0.6]);
        assert_eq!(acceptance_at(&SpecStats::default(), 0), 0.0);
    }
}
