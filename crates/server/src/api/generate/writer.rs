//! The half of a dialect that writes: generated text and tool calls in, an answer or the events of
//! a stream out.

use std::collections::VecDeque;

use axum::body::Bytes;
use selfspec_engine::{FinishReason, Progress, RequestSummary, TokenEvent};
use serde_json::Value;

use crate::api::generate::pieces::OutputPiece;
use crate::error::ApiError;

/// Writes one answer in a dialect, as a whole or as a stream.
///
/// For a whole answer, [`whole`](AnswerWriter::whole) is called once. For a stream,
/// [`begin`](AnswerWriter::begin) is called first; then [`delta`](AnswerWriter::delta) for each
/// choice that a round continued and [`choice_end`](AnswerWriter::choice_end) once a choice; at
/// last either [`end`](AnswerWriter::end) or [`fail`](AnswerWriter::fail). `progress` has the
/// timings so far; shape: (choice).
pub(crate) trait AnswerWriter: Send + 'static {
    /// The media type of a stream.
    fn stream_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// Takes the number of the prompt's tokens, before all else.
    fn prompt(&mut self, _tokens: usize) {}

    /// The JSON body of an answer that is not streamed. `choices`: all of them, by index.
    fn whole(&mut self, choices: &[FinishedChoice]) -> Value;

    /// Opens the stream.
    fn begin(&mut self, stream: &mut StreamBuffer);

    /// Shows that the stream is alive, while nothing else comes.
    fn keep_alive(&mut self, stream: &mut StreamBuffer) {
        if self.stream_type().starts_with("text/event-stream") {
            stream.push(": waiting\n\n");
        }
    }

    /// Continues a choice.
    fn delta(&mut self, delta: ChoiceDelta, progress: &[Option<Progress>], stream: &mut StreamBuffer);

    /// Ends a choice.
    fn choice_end(&mut self, index: usize, end: AnswerEnd, progress: &[Option<Progress>], stream: &mut StreamBuffer);

    /// Ends the stream. `summaries`: those of all choices, by index.
    fn end(&mut self, summaries: &[RequestSummary], progress: &[Option<Progress>], stream: &mut StreamBuffer);

    /// Ends the stream with an error.
    fn fail(&mut self, error: &ApiError, stream: &mut StreamBuffer);
}

/// The events of a stream that have not been sent.
#[derive(Debug, Default)]
pub(crate) struct StreamBuffer(VecDeque<Bytes>);

impl StreamBuffer {
    /// Adds a server-sent event with this data.
    pub(crate) fn data(&mut self, data: &Value) {
        self.push(format!("data: {data}\n\n"));
    }

    /// Adds a server-sent event of this name, with an object that gets the name as its `type`.
    pub(crate) fn event(&mut self, name: &str, mut data: Value) {
        if let Value::Object(fields) = &mut data {
            fields.shift_insert(0, "type".to_owned(), name.into());
        }
        self.push(format!("event: {name}\ndata: {data}\n\n"));
    }

    /// Adds bytes as they are.
    pub(crate) fn push(&mut self, bytes: impl Into<Bytes>) {
        self.0.push_back(bytes.into());
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }
}

/// What a round added to a choice.
#[derive(Debug)]
pub(crate) struct ChoiceDelta {
    pub(crate) index: usize,
    /// Text and tool calls. Empty if the text may still become a tool call, and tokens are listed.
    pub(crate) pieces: Vec<OutputPiece>,
    /// The tokens, also those whose text is not in `pieces` yet.
    pub(crate) tokens: Vec<TokenEvent>,
}

/// A choice that has ended.
#[derive(Debug)]
pub(crate) struct FinishedChoice {
    pub(crate) pieces: Vec<OutputPiece>,
    /// Its tokens, if the answer lists them.
    pub(crate) tokens: Vec<TokenEvent>,
    pub(crate) summary: RequestSummary,
    pub(crate) end: AnswerEnd,
}

/// Why a choice ended, as APIs tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    /// At a stop string, an end-of-text token, or the end of the format.
    Stop,
    /// At the token limit or the end of the context.
    Length,
    /// As `Stop`, with tool calls in the text.
    ToolCalls,
}

impl AnswerEnd {
    /// `calls`: whether the text had tool calls.
    pub(crate) fn of(reason: FinishReason, calls: bool) -> Self {
        match reason {
            FinishReason::Stop | FinishReason::Cancelled if calls => AnswerEnd::ToolCalls,
            FinishReason::Stop | FinishReason::Cancelled => AnswerEnd::Stop,
            FinishReason::Length | FinishReason::Context => AnswerEnd::Length,
        }
    }
}
