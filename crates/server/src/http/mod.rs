//! HTTP below the API: connections, limits, keys, origins, bodies, admission, and the end of the
//! server.

pub(crate) mod admission;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod cors;
pub(crate) mod drain;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod panics;
mod stall;
