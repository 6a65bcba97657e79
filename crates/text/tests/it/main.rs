//! Tests through the public API: with vocabularies made by hand, and with real models where the
//! environment names them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod by_definition;
mod byte_level;
mod chat;
mod grammar;
mod hugging_face;
mod real_model;

mod sentence_piece;
mod streaming;
mod support;
mod tool_calls;
mod tool_templates;
