//! Grammars of requests: their compilation, and the token masks of sequences.
//!
//! [`service`] queues and runs compilations, [`cache`] keeps their results.

mod cache;

pub(crate) mod model_compiler;
pub(crate) mod reasoning_grammar;
pub(crate) mod sequence_grammar;
pub(crate) mod service;
mod thread_clock;

#[cfg(test)]
mod tests;
