//! Grammars of requests: their compilation, and the token masks of sequences.

pub(crate) mod compile;
