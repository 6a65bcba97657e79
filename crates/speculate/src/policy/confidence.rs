//! What a draft's own confidence says about its acceptance.
//!
//! The confidence of a draft row is the probability of its most probable token, before a token is chosen. How often drafts of some confidence are
//! accepted is counted, by sequence and over sequences. That tells a draft that is worth a row of the verification from one that is not, and
//! a round that should go on from one that should not. The decision leans on the row's distribution alone and never on the token that is drawn
//! from it, so that sampled output stays distributed as the model's.

use crate::policy::acceptance::Counts;

/// Lower edges of the bins.
const EDGES: [f32; 10] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97];
/// Weight, in judged drafts, of what is expected of a bin before its drafts were judged: the confidence's own word, scaled by how far the drafts of all bins
/// held what they promised. Trained heads hold it nearly, exits of untrained models promise too much.
const WORD: f64 = 4.0;
/// Weight, in accepted drafts, of a scale of 1.
const PROMISE: f64 = 3.0;
/// Most weight that other sequences' drafts have in a bin.
const OTHERS: f64 = 12.0;

/// Accepted and judged drafts by confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Confidence {
    bins: [Counts; EDGES.len()],
}

fn bin(confidence: f32) -> usize {
    EDGES.iter().rposition(|edge| confidence >= *edge).unwrap_or(0)
}

impl Confidence {
    /// Takes note of one judged draft.
    pub(crate) fn add(&mut self, confidence: f32, accepted: bool) {
        self.bins[bin(confidence)].add(usize::from(accepted), 1);
    }

    /// Takes note of what another record counted.
    pub(crate) fn merge(&mut self, other: &Confidence) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.accepted += theirs.accepted;
            mine.judged += theirs.judged;
        }
    }

    /// Scales the counts down to a `share`, and each bin to at most `weight` judged drafts.
    pub(crate) fn age(&mut self, share: f64, weight: f64) {
        self.bins.iter_mut().for_each(|bin| *bin = bin.at_most(weight.min(share * bin.judged)));
    }

    /// The expected acceptance by bin, where `others` is what other sequences came to. Bins without drafts are expected to reach at least
    /// `floor`, so that they are tried.
    fn curve(&self, others: &Confidence, floor: f64) -> [f64; EDGES.len()] {
        let middle = |i: usize| f64::from(EDGES[i] + EDGES.get(i + 1).unwrap_or(&1.0)) / 2.0;
        let bins: [Counts; EDGES.len()] = std::array::from_fn(|i| {
            let (own, others) = (self.bins[i], others.bins[i].at_most(OTHERS));
            Counts { accepted: own.accepted + others.accepted, judged: own.judged + others.judged }
        });
        let accepted: f64 = bins.iter().map(|bin| bin.accepted).sum();
        let promised: f64 = bins.iter().enumerate().map(|(i, bin)| bin.judged * middle(i)).sum();
        let scale = (accepted + PROMISE) / (promised + PROMISE);
        std::array::from_fn(|i| {
            (bins[i].accepted + WORD * (middle(i) * scale).max(floor).min(0.99)) / (bins[i].judged + WORD)
        })
    }

    /// The expected acceptance of a draft.
    pub(crate) fn acceptance(&self, others: &Confidence, floor: f64, confidence: f32) -> f64 {
        self.curve(others, floor)[bin(confidence)]
    }

    /// The confidence from which on drafts are expected to be accepted at least as often as `wanted`; above 1 where none is.
    pub(crate) fn from(&self, others: &Confidence, floor: f64, wanted: f64) -> f32 {
        let curve = self.curve(others, floor);
        let enough = curve.iter().rev().take_while(|a| **a >= wanted).count();
        if enough == 0 { f32::INFINITY } else { EDGES[EDGES.len() - enough] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_is_taken_at_its_word_as_far_as_drafts_held_it() {
        let (mut own, none) = (Confidence::default(), Confidence::default());
        assert!((own.acceptance(&none, 0.0, 0.45) - 0.45).abs() < 1e-6);
        assert!((own.acceptance(&none, 0.7, 0.45) - 0.7).abs() < 1e-6);
        assert_eq!(
            (own.from(&none, 0.0, 0.5), own.from(&none, 0.0, 0.0), own.from(&none, 0.0, 0.999)),
            (0.5, 0.0, f32::INFINITY)
        );
        for _ in 0..40 {
            own.add(0.55, false);
        }
        assert!(own.acceptance(&none, 0.0, 0.55) < 0.05);
        assert!(own.acceptance(&none, 0.0, 0.95) < 0.4, "those of other bins are believed less as well");
        let mut modest = Confidence::default();
        (0..40).for_each(|_| modest.add(0.05, true));
        assert!(modest.acceptance(&none, 0.0, 0.05) > 0.9 && modest.acceptance(&none, 0.0, 0.15) > 0.9);
        (0..40).for_each(|_| modest.add(0.35, false));
        assert_eq!(modest.from(&none, 0.0, 0.2), 0.4, "with a bin that is bad go those below it");
    }

    #[test]
    fn others_count_as_much_as_a_few_drafts_of_ones_own() {
        let (mut own, mut others) = (Confidence::default(), Confidence::default());
        (0..1000).for_each(|_| others.add(0.15, true));
        assert!(own.acceptance(&others, 0.0, 0.15) > 0.85);
        (0..40).for_each(|_| own.add(0.15, false));
        assert!(own.acceptance(&others, 0.0, 0.15) < 0.45);
        let (mut both, none) = (own, Confidence::default());
        both.merge(&others);
        assert!(both.acceptance(&none, 0.0, 0.15) > own.acceptance(&none, 0.0, 0.15));
        let before = both.bins[1].judged;
        both.age(0.5, 1e9);
        assert!((both.bins[1].judged - before / 2.0).abs() < 1e-9 && both.bins[2] == Counts::default());
        both.age(1.0, 4.0);
        assert!((both.bins[1].judged - 4.0).abs() < 1e-9);
    }
}
