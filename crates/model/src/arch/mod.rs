//! What a model is made of: its configuration, and the names of its tensors.

pub(crate) mod config;
pub(crate) mod names;
