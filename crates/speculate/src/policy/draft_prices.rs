//! The prices of a round: its draft steps and its verification, in plain decoding steps.

use crate::draft::params::MAX_DRAFT;
use crate::draft::path::DraftPath;
use crate::policy::acceptance::AcceptanceChain;
use crate::policy::cost::estimates::CostEstimates;

/// Longest draft, in tokens, that the search for the best length considers.
pub(crate) const LONGEST_PLANNED_DRAFT: usize = 8;

/// What a round of one drafter costs at the present context length and load, in plain decoding
/// steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DraftPrices {
    /// One draft step: c. 0 for a drafter that copies.
    pub(crate) draft_step: f64,
    /// The verification of k drafts and one bonus row. Shape: (k).
    with_bonus: [f64; MAX_DRAFT + 1],
    /// The verification of k drafts alone; index 0 is one row, from a kept state. Shape: (k).
    without_bonus: [f64; MAX_DRAFT + 1],
}

impl DraftPrices {
    /// The prices of a drafter with this path; `None`: of one that copies.
    pub(crate) fn new(costs: CostEstimates<'_>, path: Option<&DraftPath>) -> Self {
        let mut prices = Self::flat(path.map_or(0.0, |p| costs.c(p)), 1.0);
        for k in 0..=MAX_DRAFT {
            match path {
                Some(_) => {
                    prices.with_bonus[k] = costs.verify(path, k, 1);
                    prices.without_bonus[k] = costs.verify(path, k.max(1), 0);
                }
                None => {
                    prices.with_bonus[k] = costs.b(k + 1);
                    prices.without_bonus[k] = costs.b(k.max(1));
                }
            }
        }
        prices
    }

    /// Prices with one cost for every verification.
    fn flat(draft_step: f64, verification: f64) -> Self {
        let all = [verification; MAX_DRAFT + 1];
        DraftPrices { draft_step, with_bonus: all, without_bonus: all }
    }

    /// The verification of `k` drafts, with or without a bonus row, in plain steps.
    pub(crate) fn verification(&self, k: usize, bonus: bool) -> f64 {
        if bonus { self.with_bonus[k] } else { self.without_bonus[k] }
    }

    /// What draft `i` (from 0) adds to the verification, in plain steps.
    pub(crate) fn added_row(&self, i: usize, bonus: bool) -> f64 {
        let before = if i == 0 { self.without_bonus[0] } else { self.verification(i, bonus) };
        (self.verification((i + 1).min(MAX_DRAFT), bonus) - before).max(0.0)
    }

    /// The expected speed-up over plain decoding of rounds of `k` drafts.
    pub(crate) fn speedup(&self, chain: &AcceptanceChain, k: usize, bonus: bool) -> f64 {
        // Token i + 1 of a round exists if i drafts were accepted. Without the bonus row there is
        // no token after the last draft.
        let (mut tokens, mut reached) = (0.0, 1.0);
        for i in 0..k + usize::from(bonus) {
            tokens += reached;
            reached *= chain.get(i).copied().unwrap_or(0.0);
        }
        tokens / (self.draft_step * k as f64 + self.verification(k, bonus))
    }

    /// The draft length with the highest expected speed-up, and that speed-up.
    pub(crate) fn best_draft_len(&self, chain: &AcceptanceChain, bonus: bool) -> (usize, f64) {
        let mut best = (1, f64::NEG_INFINITY);
        for k in 1..=LONGEST_PLANNED_DRAFT {
            let speedup = self.speedup(chain, k, bonus);
            if speedup > best.1 {
                best = (k, speedup);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published table for c = 0.3 and b = 1, computed from the formula.
    #[test]
    fn the_formula_gives_the_textbook_table() {
        let table = [
            (1, [1.23, 1.31, 1.38, 1.46]),
            (2, [1.23, 1.37, 1.53, 1.69]),
            (3, [1.15, 1.33, 1.55, 1.81]),
            (4, [1.05, 1.26, 1.53, 1.86]),
            (6, [0.87, 1.09, 1.41, 1.86]),
            (8, [0.73, 0.94, 1.27, 1.80]),
        ];
        for (k, row) in table {
            for (alpha, expected) in [0.6, 0.7, 0.8, 0.9].into_iter().zip(row) {
                let got = DraftPrices::flat(0.3, 1.0).speedup(&[alpha; MAX_DRAFT], k, true);
                assert!((got - expected).abs() < 0.006, "k {k}, alpha {alpha}: {got}, expected {expected}");
            }
        }
    }

    #[test]
    fn expensive_drafts_are_best_kept_short() {
        let best = |c, b, alpha| DraftPrices::flat(c, b).best_draft_len(&[alpha; MAX_DRAFT], true).0;
        assert_eq!(best(0.3, 1.0, 0.8), 3);
        assert_eq!(best(0.7, 1.1, 0.6), 1);
        assert_eq!(best(0.0, 1.0, 0.6), LONGEST_PLANNED_DRAFT);
    }
}
