//! Architectures as data: the table of families, configurations and their readers, and the table of
//! a layer's tensors with their names.

mod checks;
pub(crate) mod config;
pub(crate) mod family;
mod folder;
mod gguf;
pub(crate) mod names;
mod read;
pub(crate) mod tensor;
