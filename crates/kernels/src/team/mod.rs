//! The worker team.

mod workers;

pub(crate) use workers::SendPtr;
pub use workers::Team;
