//! Statistics behind the figures: medians, confidence intervals, random draws.

mod bootstrap;
mod median;
mod random;

pub use bootstrap::{ConfidenceInterval, resample};
pub use median::{median, tokens_per_second};
pub use random::SplitMix64;
