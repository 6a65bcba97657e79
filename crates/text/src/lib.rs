//! Text to tokens and back: tokenizers, chat templates, incremental detokenising, stop strings,
//! grammars, calls of functions, word wrap.
//!
//! Nothing here knows of models or weights: a vocabulary comes in as plain data ([`GgufVocab`]) or
//! as the bytes of tokenizer.json ([`Tokenizer::from_hf`]), and nothing in it is trusted.
//!
//! Invariants:
//! - What a user wrote never becomes a control token: [`Tokenizer::encode`] does not look for them,
//!   and [`Tokenizer::encode_prompt`] only in what the template itself wrote.
//! - A prompt has one BOS, whoever put it there.
//! - [`Detokenizer`], [`StopMatcher`], [`WordWrap`] and [`ToolCallReader`] give the same however
//!   their input is cut, and the last one loses nothing of it.

#![forbid(unsafe_code)]

mod chat;
mod error;
mod grammar;
mod stop_strings;
mod tokenizer;
mod tools;
mod word_wrap;

pub use chat::message::Message;
pub use chat::template::ChatTemplate;
pub use chat::tool_support::ToolSupport;
pub use error::TextError;
pub use grammar::check::LONGEST_GRAMMAR;
pub use grammar::compile::GrammarCompiler;
pub use grammar::source::{GrammarSource, one_line};
pub use grammar::state::{Grammar, GrammarState};
pub use stop_strings::StopMatcher;
pub use tokenizer::detokenizer::Detokenizer;
pub use tokenizer::encode::Tokenizer;
pub use tokenizer::gguf::GgufVocab;
pub use tokenizer::rendered_prompt::RenderedPrompt;
pub use tokenizer::vocab::TokenKind;
pub use tools::call::ToolCall;
pub use tools::call_reader::{AnswerPiece, FoundCall, ToolCallReader};
pub use tools::style::ToolStyle;
pub use word_wrap::WordWrap;
