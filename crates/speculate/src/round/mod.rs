//! The round: draft, verify, accept.

pub(crate) mod draft_verify_accept;
pub(crate) mod lockstep;
pub(crate) mod token_source;
pub(crate) mod waiting_cost;
