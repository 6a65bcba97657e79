//! The one forward pass.

mod exit_head;
pub(crate) mod pass;
