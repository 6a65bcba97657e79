//! The cost model: what steps cost, learned from measured times.

pub(crate) mod estimates;
pub(crate) mod model;
pub(crate) mod path_record;
pub(crate) mod recorded_steps;
#[cfg(test)]
pub(crate) mod rows;
pub(crate) mod step_times;
#[cfg(test)]
mod tests;
