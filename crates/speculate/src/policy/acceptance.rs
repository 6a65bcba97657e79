//! The acceptance record: how many drafts were accepted, in all and by place in the round. Old
//! drafts fade.

use crate::draft::params::MAX_DRAFT;

/// Verified drafts after which the weight of an older draft has fallen to 1/e.
const MEMORY: f64 = 48.0;
/// Weight, in verified drafts, of the common acceptance rate as a prior for each place.
const PLACE_PRIOR_WEIGHT: f64 = 4.0;

/// Accepted and verified drafts. Both fade, so that they are not whole numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct AcceptanceCounts {
    pub(crate) accepted: f64,
    pub(crate) judged: f64,
}

impl AcceptanceCounts {
    /// Adds `judged` drafts, of which `accepted` were accepted.
    pub(crate) fn add(&mut self, accepted: usize, judged: usize) {
        let keep = (1.0 - 1.0 / MEMORY).powf(judged as f64);
        self.accepted = self.accepted * keep + accepted as f64;
        self.judged = self.judged * keep + judged as f64;
    }

    /// The same rate, from at most `weight` verified drafts.
    pub(crate) fn at_most(self, weight: f64) -> AcceptanceCounts {
        let scale = if self.judged > weight { weight / self.judged } else { 1.0 };
        AcceptanceCounts { accepted: self.accepted * scale, judged: self.judged * scale }
    }
}

/// The acceptance of one kind of offer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AcceptanceRecord {
    pub(crate) all: AcceptanceCounts,
    places: [AcceptanceCounts; MAX_DRAFT], // (place in the round)
}

/// The expected acceptance rate of each draft of a round, given that the drafts before it were
/// accepted. Shape: (place in the round).
pub(crate) type AcceptanceChain = [f64; MAX_DRAFT];

impl AcceptanceRecord {
    /// Records a round: `accepted` drafts, then one rejected if `rejected`.
    pub(crate) fn record_round(&mut self, accepted: usize, rejected: bool) {
        self.all.add(accepted, accepted + usize::from(rejected));
        for place in &mut self.places[..accepted.min(MAX_DRAFT)] {
            place.add(1, 1);
        }
        if rejected && let Some(place) = self.places.get_mut(accepted) {
            place.add(0, 1);
        }
    }

    /// Scales the counts down to at most `weight` verified drafts, so that new drafts soon outweigh
    /// them.
    pub(crate) fn limit_weight(&mut self, weight: f64) {
        let scale = (weight / self.all.judged).min(1.0);
        for counts in self.places.iter_mut().chain([&mut self.all]) {
            counts.accepted *= scale;
            counts.judged *= scale;
        }
    }

    /// The acceptance rate at each place, where `alpha` is the common rate: the prior of each
    /// place.
    pub(crate) fn chain(&self, alpha: f64) -> AcceptanceChain {
        self.places.map(|place| (place.accepted + PLACE_PRIOR_WEIGHT * alpha) / (place.judged + PLACE_PRIOR_WEIGHT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_own_rate_and_leans_on_the_common_rate() {
        let mut acceptance = AcceptanceRecord::default();
        for _ in 0..200 {
            acceptance.record_round(1, true); // the first always accepted, the second never
        }
        let chain = acceptance.chain(0.5);
        assert!(chain[0] > 0.95 && chain[1] < 0.05, "{chain:?}");
        assert_eq!(chain[2], 0.5);
        assert!((acceptance.all.accepted / acceptance.all.judged - 0.5).abs() < 0.02);
        acceptance.limit_weight(2.0);
        assert!((acceptance.all.judged - 2.0).abs() < 1e-9);
        assert!(acceptance.chain(0.5)[0] < 0.7, "the old record yields");
    }
}
