//! The worker team: persistent threads that share the parts of one job.

mod send_ptr;
mod workers;

pub(crate) use send_ptr::SendPtr;
pub use workers::Team;
