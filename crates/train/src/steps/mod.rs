//! The course of a training: batches, schedules, the optimizer, and the state on disk.

pub(crate) mod batches;
pub(crate) mod checkpoint;
pub(crate) mod optimizer;
pub(crate) mod schedule;
