//! Tokenizers from a Hugging Face folder.

pub(crate) mod bpe_model;
pub(crate) mod components;
mod reader;
