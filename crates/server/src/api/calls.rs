//! Calls of functions in an answer: from its text to the objects that stand in messages and chunks.

use std::sync::Arc;

use selfspec_text::{FoundCall, Piece, ToolCallReader, ToolStyle};
use serde_json::{Value, json};

use crate::api::tools::Tools;
use crate::http::limits::MOST_CALLS;
use crate::short_hash::short_hash;

/// How calls stand in an answer that may hold some.
#[derive(Debug, Clone)]
pub(crate) struct Calling {
    style: ToolStyle,
    names: Arc<[String]>,
    most: usize,
}

impl Calling {
    /// `None`: the answer may hold no calls.
    pub(crate) fn of(tools: &Tools, style: ToolStyle) -> Option<Self> {
        let names: Arc<[String]> = tools.callable().map(|tool| tool.name.clone()).collect();
        let most = if tools.several == Some(false) { 1 } else { MOST_CALLS };
        (!names.is_empty()).then_some(Calling { style, names, most })
    }
}

/// One choice's text on its way to the client.
#[derive(Debug)]
pub(crate) struct Speech {
    reader: Option<ToolCallReader>,
    seed: String, // of the calls' ids
    calls: usize,
}

/// What a stretch of text comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Call { index: usize, id: String, call: FoundCall },
}

impl Speech {
    /// The text of choice `index` of the answer with this id.
    pub(crate) fn new(calling: Option<&Calling>, answer: &str, index: usize) -> Self {
        let reader = calling.map(|c| ToolCallReader::new(c.style, c.names.clone(), c.most));
        Speech { reader, seed: format!("{answer} {index}"), calls: 0 }
    }

    /// Takes more text, and gives what is certain of it.
    pub(crate) fn push(&mut self, text: String) -> Vec<Part> {
        let Some(reader) = &mut self.reader else {
            return if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
        };
        let mut pieces = Vec::new();
        reader.push(&text, &mut pieces);
        self.parts(pieces)
    }

    /// Ends the text, and gives what was held back.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        let mut pieces = Vec::new();
        if let Some(reader) = &mut self.reader {
            reader.finish(&mut pieces);
        }
        self.parts(pieces)
    }

    /// The API's word for the end of a text that ended so.
    pub(crate) fn finish_word(&self, word: &'static str) -> &'static str {
        if self.calls > 0 && word == "stop" { "tool_calls" } else { word }
    }

    fn parts(&mut self, pieces: Vec<Piece>) -> Vec<Part> {
        let mut parts = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Space(_) => {}
                Piece::Call(call) => {
                    let index = self.calls;
                    self.calls += 1;
                    let hex = short_hash(&format!("{} {index}", self.seed), 12);
                    parts.push(Part::Call { index, id: format!("call_{hex}"), call });
                }
            }
        }
        parts
    }
}

impl Part {
    /// The deltas of a stream: a call's name, and then its arguments.
    pub(crate) fn deltas(self) -> Vec<Value> {
        match self {
            Part::Text(text) => vec![json!({ "content": text })],
            Part::Call { index, id, call } => {
                let function = json!({ "name": call.name, "arguments": "" });
                let first = json!({ "index": index, "id": id, "type": "function", "function": function });
                let second = json!({ "index": index, "function": { "arguments": call.arguments } });
                vec![json!({ "tool_calls": [first] }), json!({ "tool_calls": [second] })]
            }
        }
    }
}

/// The message that a whole text is. It has no content if it is calls alone.
pub(crate) fn message(speech: &mut Speech, text: &str) -> Value {
    let mut parts = speech.push(text.to_owned());
    parts.extend(speech.finish());
    let mut content = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => content.push_str(&text),
            Part::Call { id, call, .. } => {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
        }
    }
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !calls.is_empty() {
        if content.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls.into();
    }
    message
}
