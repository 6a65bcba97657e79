//! Draft, verify, accept.

pub(crate) mod accept;
pub(crate) mod lockstep;
pub(crate) mod source;
