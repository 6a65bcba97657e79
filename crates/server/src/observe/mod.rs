//! What is observed of requests: metrics, the record of finished requests, and the arms of A/B
//! comparisons.

pub(crate) mod arm;
pub(crate) mod context;
pub(crate) mod count;
pub(crate) mod exposition;
pub(crate) mod metrics;
pub(crate) mod observer;
pub(crate) mod record;
