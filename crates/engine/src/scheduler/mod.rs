//! The engine thread: which requests run, and the steps that they share.
//!
//! [`engine_thread`] holds the loop, [`admission`] decides which requests run, [`step`] runs them,
//! and [`recovery`] deals with panics.

mod admission;
pub(crate) mod checked_request;
pub(crate) mod engine_thread;
pub(crate) mod page_budget;
mod prefix_cache;
pub(crate) mod queued_request;
mod recovery;
mod running_request;
mod step;
#[cfg(test)]
mod tests;
