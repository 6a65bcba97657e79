//! How drafts fare: counts that fade, in all and by place in the round.

use crate::params::MAX_DRAFT;

/// Judged drafts after which what was before them weighs 1/e.
const MEMORY: f64 = 48.0;
/// Weight, in judged drafts, of the acceptance of all places as a prior for each one.
const PLACE_PRIOR: f64 = 4.0;

/// Accepted and judged drafts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) accepted: f64,
    pub(crate) judged: f64,
}

impl Counts {
    pub(crate) fn add(&mut self, accepted: usize, judged: usize) {
        let keep = (1.0 - 1.0 / MEMORY).powf(judged as f64);
        self.accepted = self.accepted * keep + accepted as f64;
        self.judged = self.judged * keep + judged as f64;
    }

    /// The same share, of at most `weight` judged drafts.
    pub(crate) fn at_most(self, weight: f64) -> Counts {
        let scale = if self.judged > weight { weight / self.judged } else { 1.0 };
        Counts { accepted: self.accepted * scale, judged: self.judged * scale }
    }
}

/// Acceptance of one kind of proposal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acceptance {
    pub(crate) all: Counts,
    places: [Counts; MAX_DRAFT],
}

/// The expected acceptance of each draft of a round, given that those before it were accepted.
pub(crate) type Chain = [f64; MAX_DRAFT];

impl Acceptance {
    /// Takes note of a round: `accepted` drafts, then one refused if `rejected`.
    pub(crate) fn add(&mut self, accepted: usize, rejected: bool) {
        self.all.add(accepted, accepted + usize::from(rejected));
        for place in &mut self.places[..accepted.min(MAX_DRAFT)] {
            place.add(1, 1);
        }
        if rejected && let Some(place) = self.places.get_mut(accepted) {
            place.add(0, 1);
        }
    }

    /// Scales the counts down to at most `weight` judged drafts, so that news soon outweighs them.
    pub(crate) fn age(&mut self, weight: f64) {
        let scale = (weight / self.all.judged).min(1.0);
        for counts in self.places.iter_mut().chain([&mut self.all]) {
            counts.accepted *= scale;
            counts.judged *= scale;
        }
    }

    /// The acceptance at each place, where `alpha` is expected of drafts about whose place nothing is known.
    pub(crate) fn chain(&self, alpha: f64) -> Chain {
        self.places.map(|place| (place.accepted + PLACE_PRIOR * alpha) / (place.judged + PLACE_PRIOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_and_lean_on_the_whole_where_little_is_known() {
        let mut acceptance = Acceptance::default();
        for _ in 0..200 {
            acceptance.add(1, true); // the first always accepted, the second never
        }
        let chain = acceptance.chain(0.5);
        assert!(chain[0] > 0.95 && chain[1] < 0.05, "{chain:?}");
        assert_eq!(chain[2], 0.5);
        assert!((acceptance.all.accepted / acceptance.all.judged - 0.5).abs() < 0.02);
        acceptance.age(2.0);
        assert!((acceptance.all.judged - 2.0).abs() < 1e-9);
        assert!(acceptance.chain(0.5)[0] < 0.7, "what is old yields");
    }
}
