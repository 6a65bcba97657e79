//! Running validated steps: the executor of a device, the backend made of an executor and the KV
//! index, and the one forward pass.

pub(crate) mod executor;
pub(crate) mod paged;
mod pass;

mod exit_head;
pub(crate) mod layers;
pub(crate) mod scratch;
pub(crate) mod states;
