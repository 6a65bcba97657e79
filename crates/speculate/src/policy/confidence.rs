//! The confidence record: how often drafts of some confidence are accepted.
//!
//! The confidence of a draft row is the probability of its most probable token, before a token is
//! chosen. Accepted and verified drafts are counted by bins of confidence, for each sequence and
//! over sequences. The stop rule reads the expected acceptance from here.

use crate::policy::acceptance::AcceptanceCounts;

/// Lower edges of the bins, as probabilities.
pub(crate) const EDGES: [f32; 10] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97];
/// Weight, in verified drafts, of the prior of a bin. The prior is the confidence itself, times the
/// ratio of accepted drafts to the sum of confidences over all bins. Trained heads are nearly
/// calibrated; exits of untrained models are too confident.
const BIN_PRIOR_WEIGHT: f64 = 4.0;
/// Weight, in accepted drafts, of a ratio of 1 as the prior of that ratio.
const RATIO_PRIOR_WEIGHT: f64 = 3.0;
/// Highest weight of other sequences' drafts in a bin, in verified drafts.
const OTHERS_MAX_WEIGHT: f64 = 12.0;
/// Highest acceptance rate that a prior expects.
const HIGHEST_PRIOR: f64 = 0.99;

/// Accepted and verified drafts by bin of confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ConfidenceRecord {
    bins: [AcceptanceCounts; EDGES.len()],
}

fn bin(confidence: f32) -> usize {
    EDGES.iter().rposition(|edge| confidence >= *edge).unwrap_or(0)
}

impl ConfidenceRecord {
    /// Records one verified draft.
    pub(crate) fn record_draft(&mut self, confidence: f32, accepted: bool) {
        self.bins[bin(confidence)].add(usize::from(accepted), 1);
    }

    /// Adds the counts of another record.
    pub(crate) fn merge(&mut self, other: &ConfidenceRecord) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.accepted += theirs.accepted;
            mine.judged += theirs.judged;
        }
    }

    /// Scales the counts down to a `share`, and each bin to at most `weight` verified drafts.
    pub(crate) fn scale(&mut self, share: f64, weight: f64) {
        self.bins.iter_mut().for_each(|bin| *bin = bin.at_most(weight.min(share * bin.judged)));
    }

    /// The expected acceptance rate by bin, where `others` is the record of other sequences. Bins
    /// without drafts are expected to reach at least `floor`, so that they are tried.
    pub(crate) fn curve(&self, others: &ConfidenceRecord, floor: f64) -> [f64; EDGES.len()] {
        let middle = |i: usize| f64::from(EDGES[i] + EDGES.get(i + 1).unwrap_or(&1.0)) / 2.0;
        let bins: [AcceptanceCounts; EDGES.len()] = std::array::from_fn(|i| {
            let (own, others) = (self.bins[i], others.bins[i].at_most(OTHERS_MAX_WEIGHT));
            AcceptanceCounts { accepted: own.accepted + others.accepted, judged: own.judged + others.judged }
        });
        let accepted: f64 = bins.iter().map(|bin| bin.accepted).sum();
        let promised: f64 = bins.iter().enumerate().map(|(i, bin)| bin.judged * middle(i)).sum();
        let ratio = (accepted + RATIO_PRIOR_WEIGHT) / (promised + RATIO_PRIOR_WEIGHT);
        std::array::from_fn(|i| {
            let prior = (middle(i) * ratio).max(floor).min(HIGHEST_PRIOR);
            (bins[i].accepted + BIN_PRIOR_WEIGHT * prior) / (bins[i].judged + BIN_PRIOR_WEIGHT)
        })
    }

    /// The expected acceptance rate of a draft.
    pub(crate) fn acceptance(&self, others: &ConfidenceRecord, floor: f64, confidence: f32) -> f64 {
        self.curve(others, floor)[bin(confidence)]
    }

    /// The lowest confidence from which drafts are expected to be accepted at least at the rate
    /// `wanted`; infinite where no bin reaches it.
    pub(crate) fn min_confidence(&self, others: &ConfidenceRecord, floor: f64, wanted: f64) -> f32 {
        let curve = self.curve(others, floor);
        let enough = curve.iter().rev().take_while(|a| **a >= wanted).count();
        if enough == 0 { f32::INFINITY } else { EDGES[EDGES.len() - enough] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_is_trusted_as_far_as_drafts_confirmed_it() {
        let (mut own, none) = (ConfidenceRecord::default(), ConfidenceRecord::default());
        assert!((own.acceptance(&none, 0.0, 0.45) - 0.45).abs() < 1e-6);
        assert!((own.acceptance(&none, 0.7, 0.45) - 0.7).abs() < 1e-6);
        assert_eq!(
            (
                own.min_confidence(&none, 0.0, 0.5),
                own.min_confidence(&none, 0.0, 0.0),
                own.min_confidence(&none, 0.0, 0.999)
            ),
            (0.5, 0.0, f32::INFINITY)
        );
        for _ in 0..40 {
            own.record_draft(0.55, false);
        }
        assert!(own.acceptance(&none, 0.0, 0.55) < 0.05);
        assert!(own.acceptance(&none, 0.0, 0.95) < 0.4, "other bins are trusted less too");
        let mut modest = ConfidenceRecord::default();
        (0..40).for_each(|_| modest.record_draft(0.05, true));
        assert!(modest.acceptance(&none, 0.0, 0.05) > 0.9 && modest.acceptance(&none, 0.0, 0.15) > 0.9);
        (0..40).for_each(|_| modest.record_draft(0.35, false));
        assert_eq!(modest.min_confidence(&none, 0.0, 0.2), 0.4, "a bad bin excludes the bins below it");
    }

    #[test]
    fn other_sequences_count_as_a_few_drafts() {
        let (mut own, mut others) = (ConfidenceRecord::default(), ConfidenceRecord::default());
        (0..1000).for_each(|_| others.record_draft(0.15, true));
        assert!(own.acceptance(&others, 0.0, 0.15) > 0.85);
        (0..40).for_each(|_| own.record_draft(0.15, false));
        assert!(own.acceptance(&others, 0.0, 0.15) < 0.45);
        let (mut both, none) = (own, ConfidenceRecord::default());
        both.merge(&others);
        assert!(both.acceptance(&none, 0.0, 0.15) > own.acceptance(&none, 0.0, 0.15));
        let before = both.bins[1].judged;
        both.scale(0.5, 1e9);
        assert!((both.bins[1].judged - before / 2.0).abs() < 1e-9 && both.bins[2] == AcceptanceCounts::default());
        both.scale(1.0, 4.0);
        assert!((both.bins[1].judged - 4.0).abs() < 1e-9);
    }
}
