//! Splits the text of a choice into content and tool calls.

use std::sync::Arc;

use selfspec_text::{AnswerPiece, FoundCall, ToolCallReader, ToolStyle};

use crate::api::request::ToolOffer;
use crate::http::limits::MOST_CALLS;
use crate::short_hash::short_hash;

/// The tool calls that an answer may contain.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedCalls {
    style: ToolStyle,
    names: Arc<[String]>,
    most: usize,
}

impl ExpectedCalls {
    /// `None`: the answer may contain no tool calls.
    pub(crate) fn new(tools: &ToolOffer, style: ToolStyle) -> Option<Self> {
        let names: Arc<[String]> = tools.callable().map(|tool| tool.name.clone()).collect();
        let most = if tools.parallel == Some(false) { 1 } else { MOST_CALLS };
        (!names.is_empty()).then_some(ExpectedCalls { style, names, most })
    }
}

/// A piece of a choice's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputPiece {
    Text(String),
    ToolCall {
        /// Its place among the calls of the choice.
        index: usize,
        /// A hash that no other call has, in hexadecimal.
        id: String,
        call: FoundCall,
    },
}

/// Splits one choice's text while it is generated.
#[derive(Debug)]
pub(crate) struct OutputSplitter {
    reader: Option<ToolCallReader>,
    seed: String, // of the ids of calls
    calls: usize,
}

impl OutputSplitter {
    /// For choice `index` of the answer with this serial, which makes the ids of its calls unique.
    pub(crate) fn new(expected: Option<&ExpectedCalls>, serial: &str, index: usize) -> Self {
        let reader = expected.map(|e| ToolCallReader::new(e.style, e.names.clone(), e.most));
        OutputSplitter { reader, seed: format!("{serial} {index}"), calls: 0 }
    }

    /// Takes more text, and returns the pieces that are complete.
    pub(crate) fn push(&mut self, text: String) -> Vec<OutputPiece> {
        let Some(reader) = &mut self.reader else {
            return if text.is_empty() { Vec::new() } else { vec![OutputPiece::Text(text)] };
        };
        let mut pieces = Vec::new();
        reader.push(&text, &mut pieces);
        self.output(pieces)
    }

    /// Ends the text, and returns the remaining pieces.
    pub(crate) fn finish(&mut self) -> Vec<OutputPiece> {
        let mut pieces = Vec::new();
        if let Some(reader) = &mut self.reader {
            reader.finish(&mut pieces);
        }
        self.output(pieces)
    }

    /// Whether the text had tool calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    fn output(&mut self, pieces: Vec<AnswerPiece>) -> Vec<OutputPiece> {
        let mut output = Vec::new();
        for piece in pieces {
            match piece {
                AnswerPiece::Text(text) => output.push(OutputPiece::Text(text)),
                AnswerPiece::Space(_) => {}
                AnswerPiece::Call(call) => {
                    let index = self.calls;
                    self.calls += 1;
                    let id = short_hash(&format!("{} {index}", self.seed), 12);
                    output.push(OutputPiece::ToolCall { index, id, call });
                }
            }
        }
        output
    }
}
