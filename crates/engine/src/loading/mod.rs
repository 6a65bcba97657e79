//! A model from disk to memory: weights, tokenizer, chat template, exit head, tuning.

pub(crate) mod draft_setup;
pub(crate) mod loaded;
pub(crate) mod model_info;
pub(crate) mod text_files;
pub(crate) mod tuning;
