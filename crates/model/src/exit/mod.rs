//! Exit heads as files: their cards, their tensors, and their faults.

pub(crate) mod card;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod tensors;
