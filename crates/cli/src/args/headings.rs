//! Headings of the help texts that several commands share.

pub(super) const SAMPLING: &str = "Sampling (changes the output)";
pub(super) const SPECULATION: &str = "Speculation (never changes the output of greedy or seeded runs)";
pub(super) const OUTPUT: &str = "Output";
pub(super) const COMPUTE: &str = "Compute (the number of threads never changes the output)";
pub(super) const GLOBAL: &str = "Global options";
