//! Statistics behind the figures and proofs: medians, confidence intervals, random draws,
//! chi-square tests.

mod acceptance;
mod bootstrap;
mod chi_square;
mod exactness;
mod median;
mod random;

pub use acceptance::{
    ENOUGH_JUDGED, LONGEST_CONSIDERED, acceptance_at, acceptance_by_place, best_draft_len, promised_speedup,
};
pub use bootstrap::{ConfidenceInterval, resample};
pub use chi_square::{ChiSquareTest, SIGNIFICANCE};
pub use exactness::{DraftingRule, ExactnessError, SamplingTrial, TrialResult, exact_distribution};
pub use median::{median, tokens_per_second};
pub use random::SplitMix64;
