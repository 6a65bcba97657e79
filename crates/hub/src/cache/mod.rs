//! The cache of fetched models.

pub(crate) mod lock;
pub(crate) mod manifest;
pub(crate) mod store;
