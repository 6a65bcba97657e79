//! Weights as the CPU wants them: matrices packed into panels.

pub(crate) mod dense;
pub(crate) mod draft_heads;
pub(crate) mod draft_vocab;
pub(crate) mod exit_head;
pub(crate) mod layer;
pub(crate) mod model;
mod pack;
