//! HTTP below the API: connections, limits, keys, origins, bodies.

pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod cors;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod panics;
pub(crate) mod wire;
