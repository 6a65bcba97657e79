//! What is seen of requests: metrics, the record, and the arms of a comparison.

pub(crate) mod arm;
pub(crate) mod exposition;
pub(crate) mod metrics;
pub(crate) mod record;
pub(crate) mod ticket;
pub(crate) mod watch;
