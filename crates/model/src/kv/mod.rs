//! The index of the KV cache: sequences, their pages, and every check of a row. No arithmetic, no floats.

pub(crate) mod pages;
pub(crate) mod sequence;
