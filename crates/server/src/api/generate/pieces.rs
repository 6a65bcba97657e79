//! Splits the output of a choice into reasoning, content and tool calls.

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
    /// What the model reasoned before it answers. White space around it is left out, and a piece is
    /// never empty.
    Reasoning(String),
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
    reasoning: ReasoningText,
}

/// The text of the reasoning, without the white space around it.
#[derive(Debug, Default)]
struct ReasoningText {
    begun: bool,    // there was reasoning, perhaps white space alone
    written: bool,  // some of it came out
    space: String,  // white space that comes out before more text
    answered: bool, // the answer's text has begun
}

impl ReasoningText {
    fn push(&mut self, text: &str) -> Option<OutputPiece> {
        self.begun = true;
        let words = text.trim_end();
        if words.is_empty() {
            self.space.push_str(text);
            return None;
        }
        let before = std::mem::take(&mut self.space);
        self.space.push_str(&text[words.len()..]);
        let whole = before + words;
        let out = if self.written { whole.as_str() } else { whole.trim_start() };
        self.written = true;
        Some(OutputPiece::Reasoning(out.to_owned()))
    }

    /// The answer's text without the white space that stands between it and the reasoning.
    fn after(&mut self, text: String) -> String {
        if !self.begun || self.answered {
            return text;
        }
        let words = text.trim_start();
        self.answered = !words.is_empty();
        words.to_owned()
    }
}

impl OutputSplitter {
    /// For choice `index` of the answer with this serial, which makes the ids of its calls unique.
    pub(crate) fn new(expected: Option<&ExpectedCalls>, serial: &str, index: usize) -> Self {
        let reader = expected.map(|e| ToolCallReader::new(e.style, e.names.clone(), e.most));
        OutputSplitter { reader, seed: format!("{serial} {index}"), calls: 0, reasoning: ReasoningText::default() }
    }

    /// Takes more of the reasoning, which comes before the text.
    pub(crate) fn push_reasoning(&mut self, text: &str) -> Vec<OutputPiece> {
        self.reasoning.push(text).into_iter().collect()
    }

    /// Takes more text, and returns the pieces that are complete.
    pub(crate) fn push(&mut self, text: String) -> Vec<OutputPiece> {
        let text = self.reasoning.after(text);
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
