//! A replay: the requests of a record are sent to a server again, at the times at which they came,
//! and the answers compared.

mod answer;
mod client;
mod compare;
mod error;
mod report;
mod run;

pub use client::ReplayTarget;
pub use compare::ReplayResult;
pub use error::ReplayError;
pub use report::{ReplayCounts, ReplayReport, ReplayedRequest};
pub use run::{ReplayOptions, ReplaySpeed, replay};
