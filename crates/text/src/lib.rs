//! Text to tokens and back: tokenizers, chat templates, incremental detokenising, stop strings, grammars, calls of functions.
//!
//! Nothing here knows of models or weights: a vocabulary comes in as plain data ([`GgufVocab`]) or as the bytes of
//! tokenizer.json ([`Tokenizer::from_hf`]), and nothing in it is trusted.
//!
//! Invariants:
//! - What a user wrote never becomes a control token: [`Tokenizer::encode`] does not look for them, and
//!   [`Tokenizer::encode_prompt`] only in what the template itself wrote.
//! - A prompt has one BOS, whoever put it there.
//! - [`Detokenizer`], [`StopMatcher`] and [`ToolCallReader`] give the same however their input is cut, and the last one loses nothing of it.

#![forbid(unsafe_code)]

mod added;
mod alphabet;
mod bpe;
mod detokenizer;
mod eos;
mod error;
mod gguf;
mod grammar;
mod grammar_check;
mod guard;
mod hf;
mod hf_model;
mod hf_parts;
mod jinja;
mod json_scan;
mod message;
mod normalize;
mod pretokenize;
mod prompt;
mod stop;
mod template;
mod tokenizer;
mod tool_calls;
mod tool_style;
mod tool_support;
mod vocab;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use gguf::GgufVocab;
pub use grammar::{Grammar, GrammarCompiler, GrammarSource, GrammarState, one_line};
pub use grammar_check::LONGEST_GRAMMAR;
pub use message::{Message, ToolCall};
pub use prompt::RenderedPrompt;
pub use stop::StopMatcher;
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;
pub use tool_calls::{FoundCall, Piece, ToolCallReader};
pub use tool_style::ToolStyle;
pub use tool_support::ToolSupport;
pub use vocab::TokenKind;
