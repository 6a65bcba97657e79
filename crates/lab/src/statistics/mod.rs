//! Statistics behind the figures: medians, confidence intervals, random draws.

mod acceptance;
mod bootstrap;
mod median;
mod random;

pub use acceptance::{
    ENOUGH_JUDGED, LONGEST_CONSIDERED, acceptance_at, acceptance_by_place, best_draft_len, promised_speedup,
};
pub use bootstrap::{ConfidenceInterval, resample};
pub use median::{median, tokens_per_second};
pub use random::SplitMix64;
