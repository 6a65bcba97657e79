//! Text to token ids and back, from the vocabularies of GGUF files and Hugging Face folders.
//!
//! [`encode`] holds the tokenizer itself. A text passes [`added_tokens`], [`normalize`],
//! [`pretokenize`] and [`bpe`], in this order; [`detokenizer`] goes back. [`gguf`] and
//! [`hugging_face`] read files.

pub(crate) mod added_tokens;
pub(crate) mod bpe;
pub(crate) mod byte_alphabet;
pub(crate) mod detokenizer;
pub(crate) mod encode;
pub(crate) mod end_tokens;
pub(crate) mod gguf;
mod hugging_face;
pub(crate) mod normalize;
pub(crate) mod pretokenize;
pub(crate) mod rendered_prompt;
pub(crate) mod spelling;
pub(crate) mod vocab;
