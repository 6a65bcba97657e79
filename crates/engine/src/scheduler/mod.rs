//! The engine thread: which requests run, and the steps that they share.

pub(crate) mod page_budget;
pub(crate) mod prefix_cache;
pub(crate) mod running_request;
pub(crate) mod worker;
