//! Counters of the engine, for metrics.

pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod step_kind;
