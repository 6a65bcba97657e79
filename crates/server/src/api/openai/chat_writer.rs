//! Writes chat completions.

use std::sync::Arc;

use selfspec_engine::{Progress, RequestSummary};
use selfspec_text::{FoundCall, Tokenizer};
use serde_json::{Value, json};

use crate::api::generate::OutputPiece;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, FinishedChoice, StreamBuffer};
use crate::api::openai::answer::{self, AnswerHead, finish_reason, reasoning_of, text_of, token_list};
use crate::api::openai::logprobs::LogprobWriter;
use crate::api::request::OutputOptions;
use crate::app_state::AnswerIdentity;
use crate::error::ApiError;

/// Writes the answer to a chat completion.
pub(super) struct ChatWriter {
    head: AnswerHead,
    logprobs: LogprobWriter,
    choices: usize,
}

impl ChatWriter {
    pub(super) fn new(
        identity: AnswerIdentity,
        tokenizer: Option<Arc<Tokenizer>>,
        output: OutputOptions,
        choices: usize,
    ) -> Self {
        let head = AnswerHead::new(identity, "chatcmpl", "chat.completion", "chat.completion.chunk", output);
        ChatWriter { head, logprobs: LogprobWriter(tokenizer), choices }
    }
}

impl AnswerWriter for ChatWriter {
    fn whole(&mut self, choices: &[FinishedChoice]) -> Value {
        let output = self.head.output();
        let choice = |(index, choice): (usize, &FinishedChoice)| {
            let logprobs = output.logprobs.map(|_| self.logprobs.chat(&choice.tokens));
            let (message, finish) = (message(&choice.pieces), finish_reason(choice.end));
            let mut object =
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish });
            if output.tokens {
                object["tokens"] = token_list(&choice.tokens);
            }
            object
        };
        let objects = choices.iter().enumerate().map(choice).collect();
        self.head.answer(objects, &choices.iter().map(|choice| &choice.summary).collect::<Vec<_>>())
    }

    fn begin(&mut self, stream: &mut StreamBuffer) {
        for index in 0..self.choices {
            let delta = json!({ "role": "assistant", "content": "" });
            let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
            self.head.chunk(choice, &[], stream);
        }
    }

    fn delta(&mut self, delta: ChoiceDelta, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let ChoiceDelta { index, pieces, tokens } = delta;
        let output = self.head.output();
        // The first chunk of a delta has its tokens, even if all of its text is held back.
        let listed = !tokens.is_empty();
        let mut logprobs = output.logprobs.filter(|_| listed).map(|_| self.logprobs.chat(&tokens));
        let mut tokens = (output.tokens && listed).then(|| token_list(&tokens));
        let mut deltas: Vec<Value> = pieces.into_iter().flat_map(deltas).collect();
        if deltas.is_empty() {
            deltas.push(json!({ "content": "" }));
        }
        for delta in deltas {
            let logprobs = logprobs.take();
            let mut choice = json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null });
            if let Some(tokens) = tokens.take() {
                choice["tokens"] = tokens;
            }
            self.head.chunk(choice, progress, stream);
        }
    }

    fn choice_end(&mut self, index: usize, end: AnswerEnd, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let finish = finish_reason(end);
        let choice = json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish });
        self.head.chunk(choice, progress, stream);
    }

    fn end(&mut self, summaries: &[RequestSummary], progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        self.head.end(summaries, progress, stream);
    }

    fn fail(&mut self, error: &ApiError, stream: &mut StreamBuffer) {
        answer::fail(error, stream);
    }
}

fn call_id(id: &str) -> String {
    format!("call_{id}")
}

/// The message of a choice. Its content is null if it consists of tool calls alone.
fn message(pieces: &[OutputPiece]) -> Value {
    let content = text_of(pieces);
    let calls = pieces.iter().filter_map(|piece| match piece {
        OutputPiece::Text(_) | OutputPiece::Reasoning(_) => None,
        OutputPiece::ToolCall { id, call: FoundCall { name, arguments, .. }, .. } => {
            let function = json!({ "name": name, "arguments": arguments });
            Some(json!({ "id": call_id(id), "type": "function", "function": function }))
        }
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    let reasoning = reasoning_of(pieces);
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        if content.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls.into();
    }
    message
}

/// The deltas of a piece. A tool call has two: its name, then its arguments.
fn deltas(piece: OutputPiece) -> Vec<Value> {
    match piece {
        OutputPiece::Reasoning(text) => vec![json!({ "reasoning_content": text })],
        OutputPiece::Text(text) => vec![json!({ "content": text })],
        OutputPiece::ToolCall { index, id, call } => {
            let function = json!({ "name": call.name, "arguments": "" });
            let first = json!({ "index": index, "id": call_id(&id), "type": "function", "function": function });
            let second = json!({ "index": index, "function": { "arguments": call.arguments } });
            vec![json!({ "tool_calls": [first] }), json!({ "tool_calls": [second] })]
        }
    }
}
