//! Medians and random draws behind every figure.

mod median;
mod random;

pub use median::{median, tokens_per_second};
pub use random::SplitMix64;
