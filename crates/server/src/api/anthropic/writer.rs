//! Writes messages: blocks of thinking, text and tool calls, as one object or as events.
//!
//! A whole answer goes through the same steps as a stream, so both have the same blocks.

use selfspec_engine::{Progress, RequestSummary, TokenEvent};
use serde_json::{Value, json};

use crate::api::anthropic::errors;
use crate::api::generate::OutputPiece;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, FinishedChoice, StreamBuffer};
use crate::api::openai::answer::{timings_so_far, token_list};
use crate::api::request::OutputOptions;
use crate::app_state::AnswerIdentity;
use crate::error::ApiError;

/// Writes the answer to one request.
pub(super) struct MessageWriter {
    identity: AnswerIdentity,
    output: OutputOptions,
    stops: Vec<String>,
    prompt_tokens: usize,
    blocks: Vec<Value>, // that have ended
    open: Option<OpenBlock>,
    tokens: Vec<TokenEvent>, // if they are listed
    end: AnswerEnd,
}

/// The block under way, of thinking or of text.
struct OpenBlock {
    thinking: bool,
    text: String,
}

impl OpenBlock {
    fn block(&self, text: &str) -> Value {
        if self.thinking {
            json!({ "type": "thinking", "thinking": text, "signature": "" })
        } else {
            json!({ "type": "text", "text": text })
        }
    }
}

impl MessageWriter {
    /// `stops`: the stop strings of the request.
    pub(super) fn new(identity: AnswerIdentity, output: OutputOptions, stops: Vec<String>) -> Self {
        let (blocks, tokens) = (Vec::new(), Vec::new());
        MessageWriter { identity, output, stops, prompt_tokens: 0, blocks, open: None, tokens, end: AnswerEnd::Stop }
    }

    /// The message without its end.
    fn message(&self) -> Value {
        json!({
            "id": format!("msg_{}", self.identity.serial),
            "type": "message",
            "role": "assistant",
            "model": self.identity.model,
            "content": self.blocks,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": self.prompt_tokens, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 },
        })
    }

    /// Why the message ended.
    fn stop(&self, summary: &RequestSummary) -> Value {
        let stop = summary.stop_string.and_then(|index| self.stops.get(index));
        let reason = match self.end {
            AnswerEnd::Length => "max_tokens",
            AnswerEnd::ToolCalls => "tool_use",
            AnswerEnd::Stop if stop.is_some() => "stop_sequence",
            AnswerEnd::Stop => "end_turn",
        };
        json!({ "stop_reason": reason, "stop_sequence": stop.filter(|_| reason == "stop_sequence") })
    }

    fn usage(summary: &RequestSummary) -> Value {
        json!({
            "input_tokens": summary.prompt_tokens - summary.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": summary.cached_tokens,
            "output_tokens": summary.completion_tokens,
        })
    }

    /// This server's fields of a message that has ended.
    fn extend(&self, object: &mut Value, summary: &RequestSummary) {
        object["timings"] = timings_so_far(&[Some(summary.progress())]);
        if self.output.tokens {
            object["tokens"] = token_list(&self.tokens);
        }
    }

    fn text(&mut self, thinking: bool, text: &str, stream: &mut StreamBuffer) {
        if self.open.as_ref().is_some_and(|open| open.thinking != thinking) {
            self.close(stream);
        }
        let index = self.blocks.len();
        let open = self.open.get_or_insert_with(|| {
            let open = OpenBlock { thinking, text: String::new() };
            stream.event("content_block_start", json!({ "index": index, "content_block": open.block("") }));
            open
        });
        open.text.push_str(text);
        let delta = if thinking {
            json!({ "type": "thinking_delta", "thinking": text })
        } else {
            json!({ "type": "text_delta", "text": text })
        };
        stream.event("content_block_delta", json!({ "index": index, "delta": delta }));
    }

    fn close(&mut self, stream: &mut StreamBuffer) {
        if let Some(open) = self.open.take() {
            stream.event("content_block_stop", json!({ "index": self.blocks.len() }));
            self.blocks.push(open.block(&open.text));
        }
    }

    fn piece(&mut self, piece: OutputPiece, stream: &mut StreamBuffer) {
        match piece {
            OutputPiece::Reasoning(text) => self.text(true, &text, stream),
            OutputPiece::Text(text) => self.text(false, &text, stream),
            OutputPiece::ToolCall { id, call, .. } => {
                self.close(stream);
                let index = self.blocks.len();
                let block = |input: Value| json!({ "type": "tool_use", "id": format!("toolu_{id}"), "name": call.name, "input": input });
                stream.event("content_block_start", json!({ "index": index, "content_block": block(json!({})) }));
                let delta = json!({ "type": "input_json_delta", "partial_json": call.arguments });
                stream.event("content_block_delta", json!({ "index": index, "delta": delta }));
                stream.event("content_block_stop", json!({ "index": index }));
                // The reader of calls has checked that it is an object.
                self.blocks.push(block(serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))));
            }
        }
    }
}

impl AnswerWriter for MessageWriter {
    fn prompt(&mut self, tokens: usize) {
        self.prompt_tokens = tokens;
    }

    fn whole(&mut self, choices: &[FinishedChoice]) -> Value {
        let mut unsent = StreamBuffer::default();
        let Some(choice) = choices.first() else { return self.message() };
        for piece in choice.pieces.clone() {
            self.piece(piece, &mut unsent);
        }
        self.close(&mut unsent);
        self.end = choice.end;
        self.tokens.clone_from(&choice.tokens);
        let (mut message, stop) = (self.message(), self.stop(&choice.summary));
        for field in ["stop_reason", "stop_sequence"] {
            message[field] = stop[field].clone();
        }
        message["usage"] = Self::usage(&choice.summary);
        self.extend(&mut message, &choice.summary);
        message
    }

    fn begin(&mut self, stream: &mut StreamBuffer) {
        stream.event("message_start", json!({ "message": self.message() }));
        stream.event("ping", json!({}));
    }

    fn keep_alive(&mut self, stream: &mut StreamBuffer) {
        stream.event("ping", json!({}));
    }

    fn delta(&mut self, delta: ChoiceDelta, _progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        if self.output.tokens {
            self.tokens.extend(delta.tokens);
        }
        for piece in delta.pieces {
            self.piece(piece, stream);
        }
    }

    fn choice_end(&mut self, _index: usize, end: AnswerEnd, _progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        self.close(stream);
        self.end = end;
    }

    fn end(&mut self, summaries: &[RequestSummary], _progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        if let Some(summary) = summaries.first() {
            let mut last = json!({ "delta": self.stop(summary), "usage": Self::usage(summary) });
            self.extend(&mut last, summary);
            stream.event("message_delta", last);
        }
        stream.event("message_stop", json!({}));
    }

    fn fail(&mut self, error: &ApiError, stream: &mut StreamBuffer) {
        stream.event("error", errors::object(error));
    }
}
