//! Writes responses: items of reasoning, text and calls, as one object or as events.
//!
//! A whole answer goes through the same steps as a stream, so both have the same items.

use std::sync::Arc;

use selfspec_engine::{Progress, RequestSummary, TokenEvent};
use selfspec_text::Tokenizer;
use serde_json::{Value, json};

use crate::api::generate::OutputPiece;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, FinishedChoice, StreamBuffer};
use crate::api::openai::answer::{timings_so_far, token_list};
use crate::api::openai::logprobs::LogprobWriter;
use crate::api::request::OutputOptions;
use crate::api::responses::parse::Echo;
use crate::app_state::AnswerIdentity;
use crate::error::ApiError;

/// Writes the answer to one request.
pub(super) struct ResponseWriter {
    identity: AnswerIdentity,
    logprobs: LogprobWriter,
    output: OutputOptions,
    echo: Echo,
    sequence: u64,
    items: Vec<Value>, // that have ended
    open: Option<OpenItem>,
    waiting: Vec<Value>,     // log-probabilities whose text has not come
    tokens: Vec<TokenEvent>, // if they are listed
    end: AnswerEnd,
}

/// The item under way, of reasoning or of text.
struct OpenItem {
    reasoning: bool,
    id: String,
    text: String,
    logprobs: Vec<Value>,
}

impl OpenItem {
    /// The content of the item.
    fn part(&self) -> Value {
        if self.reasoning {
            json!({ "type": "reasoning_text", "text": self.text })
        } else {
            json!({ "type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs })
        }
    }

    fn item(&self, status: &str, content: Vec<Value>) -> Value {
        if self.reasoning {
            json!({ "id": self.id, "type": "reasoning", "summary": [], "content": content, "status": status })
        } else {
            json!({ "id": self.id, "type": "message", "status": status, "role": "assistant", "content": content })
        }
    }

    /// The names of the events of its text.
    fn event(&self) -> &'static str {
        if self.reasoning { "response.reasoning_text" } else { "response.output_text" }
    }
}

impl ResponseWriter {
    pub(super) fn new(
        identity: AnswerIdentity,
        tokenizer: Option<Arc<Tokenizer>>,
        output: OutputOptions,
        echo: Echo,
    ) -> Self {
        ResponseWriter {
            identity,
            logprobs: LogprobWriter(tokenizer),
            output,
            echo,
            sequence: 0,
            items: Vec::new(),
            open: None,
            waiting: Vec::new(),
            tokens: Vec::new(),
            end: AnswerEnd::Stop,
        }
    }

    /// The response as far as it has come.
    fn response(&self, status: &str, summary: Option<&RequestSummary>) -> Value {
        let identity = &self.identity;
        let or = |field: &str, default: Value| {
            self.echo.get(field).filter(|value| !value.is_null()).cloned().unwrap_or(default)
        };
        let incomplete = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        let mut response = json!({
            "id": format!("resp_{}", identity.serial),
            "object": "response",
            "created_at": identity.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": incomplete,
            "instructions": or("instructions", Value::Null),
            "max_output_tokens": or("max_output_tokens", Value::Null),
            "max_tool_calls": or("max_tool_calls", Value::Null),
            "metadata": or("metadata", json!({})),
            "model": identity.model,
            "output": self.items,
            "parallel_tool_calls": or("parallel_tool_calls", true.into()),
            "previous_response_id": null,
            "reasoning": or("reasoning", json!({ "effort": null, "summary": null })),
            "service_tier": "default",
            "store": false,
            "temperature": or("temperature", json!(1.0)),
            "text": or("text", json!({ "format": { "type": "text" } })),
            "tool_choice": or("tool_choice", "auto".into()),
            "tools": or("tools", json!([])),
            "top_logprobs": or("top_logprobs", json!(0)),
            "top_p": or("top_p", json!(1.0)),
            "truncation": "disabled",
            "usage": null,
            "user": or("user", Value::Null),
            "system_fingerprint": identity.fingerprint,
        });
        if let Some(summary) = summary {
            response["usage"] = json!({
                "input_tokens": summary.prompt_tokens,
                "input_tokens_details": { "cached_tokens": summary.cached_tokens, "cache_write_tokens": 0 },
                "output_tokens": summary.completion_tokens,
                "output_tokens_details": { "reasoning_tokens": summary.reasoning_tokens },
                "total_tokens": summary.prompt_tokens + summary.completion_tokens,
            });
            response["timings"] = timings_so_far(&[Some(summary.progress())]);
            if self.output.tokens {
                response["tokens"] = token_list(&self.tokens);
            }
        }
        response
    }

    /// Adds an event with these fields, which are an object, and its number.
    fn event(&mut self, kind: &str, mut fields: Value, stream: &mut StreamBuffer) {
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        stream.event(kind, fields);
    }

    /// Adds text to the open item, or to a new one.
    fn text(&mut self, reasoning: bool, text: &str, timings: Option<Value>, stream: &mut StreamBuffer) {
        if self.open.as_ref().is_some_and(|open| open.reasoning != reasoning) {
            self.close("completed", stream);
        }
        let index = self.items.len();
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let id = format!("{}_{}-{index}", if reasoning { "rs" } else { "msg" }, self.identity.serial);
                let open = OpenItem { reasoning, id, text: String::new(), logprobs: Vec::new() };
                let item = open.item("in_progress", Vec::new());
                self.event("response.output_item.added", json!({ "output_index": index, "item": item }), stream);
                let at = json!({ "item_id": open.id, "output_index": index, "content_index": 0, "part": open.part() });
                self.event("response.content_part.added", at, stream);
                open
            }
        };
        open.text.push_str(text);
        if !text.is_empty() {
            let mut delta = json!({ "item_id": open.id, "output_index": index, "content_index": 0, "delta": text });
            if !reasoning {
                let logprobs = std::mem::take(&mut self.waiting);
                open.logprobs.extend_from_slice(&logprobs);
                delta["logprobs"] = logprobs.into();
            }
            if let Some(timings) = timings {
                delta["timings"] = timings;
            }
            self.event(&format!("{}.delta", open.event()), delta, stream);
        }
        self.open = Some(open);
    }

    /// Ends the open item.
    fn close(&mut self, status: &str, stream: &mut StreamBuffer) {
        let Some(mut open) = self.open.take() else { return };
        let index = self.items.len();
        let at = json!({ "item_id": open.id, "output_index": index, "content_index": 0 });
        let with = |key: &str, value: Value| {
            let mut fields = at.clone();
            fields[key] = value;
            fields
        };
        let mut done = with("text", open.text.as_str().into());
        if !open.reasoning {
            open.logprobs.append(&mut self.waiting);
            done["logprobs"] = open.logprobs.clone().into();
        }
        self.event(&format!("{}.done", open.event()), done, stream);
        self.event("response.content_part.done", with("part", open.part()), stream);
        let item = open.item(status, vec![open.part()]);
        self.event("response.output_item.done", json!({ "output_index": index, "item": item.clone() }), stream);
        self.items.push(item);
    }

    fn piece(&mut self, piece: OutputPiece, timings: Option<Value>, stream: &mut StreamBuffer) {
        match piece {
            OutputPiece::Reasoning(text) => self.text(true, &text, timings, stream),
            OutputPiece::Text(text) => self.text(false, &text, timings, stream),
            OutputPiece::ToolCall { id, call, .. } => {
                self.close("completed", stream);
                let index = self.items.len();
                let (item_id, call_id) = (format!("fc_{id}"), format!("call_{id}"));
                let item = |status: &str, arguments: &str| {
                    let name = &call.name;
                    json!({ "id": item_id, "type": "function_call", "status": status, "call_id": call_id, "name": name, "arguments": arguments })
                };
                let added = json!({ "output_index": index, "item": item("in_progress", "") });
                self.event("response.output_item.added", added, stream);
                let arguments = |key: &str| json!({ "item_id": item_id, "output_index": index, key: call.arguments });
                self.event("response.function_call_arguments.delta", arguments("delta"), stream);
                let mut done = arguments("arguments");
                done["name"] = call.name.as_str().into();
                self.event("response.function_call_arguments.done", done, stream);
                let item = item("completed", &call.arguments);
                self.event("response.output_item.done", json!({ "output_index": index, "item": item.clone() }), stream);
                self.items.push(item);
            }
        }
    }

    fn last_status(&self) -> &'static str {
        if self.end == AnswerEnd::Length { "incomplete" } else { "completed" }
    }

    fn finish_items(&mut self, end: AnswerEnd, stream: &mut StreamBuffer) {
        self.end = end;
        if self.open.is_none() && self.items.is_empty() {
            self.text(false, "", None, stream); // an answer without words
        }
        self.close(self.last_status(), stream);
    }

    fn list(&mut self, tokens: Vec<TokenEvent>) {
        if self.output.logprobs.is_some() {
            let answer = tokens.partition_point(|token| token.reasoning);
            if let Value::Array(entries) = &mut self.logprobs.chat(&tokens[answer..])["content"] {
                self.waiting.append(entries);
            }
        }
        if self.output.tokens {
            self.tokens.extend(tokens);
        }
    }
}

impl AnswerWriter for ResponseWriter {
    fn whole(&mut self, choices: &[FinishedChoice]) -> Value {
        let mut unsent = StreamBuffer::default();
        let Some(choice) = choices.first() else { return self.response("completed", None) };
        self.list(choice.tokens.clone());
        for piece in choice.pieces.clone() {
            self.piece(piece, None, &mut unsent);
        }
        self.finish_items(choice.end, &mut unsent);
        self.response(self.last_status(), Some(&choice.summary))
    }

    fn begin(&mut self, stream: &mut StreamBuffer) {
        for kind in ["response.created", "response.in_progress"] {
            let response = json!({ "response": self.response("in_progress", None) });
            self.event(kind, response, stream);
        }
    }

    fn delta(&mut self, delta: ChoiceDelta, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        self.list(delta.tokens);
        let mut timings = self.output.timings.then(|| timings_so_far(progress));
        for piece in delta.pieces {
            self.piece(piece, timings.take(), stream);
        }
    }

    fn choice_end(&mut self, _index: usize, end: AnswerEnd, _progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        self.finish_items(end, stream);
    }

    fn end(&mut self, summaries: &[RequestSummary], _progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let status = self.last_status();
        let response = json!({ "response": self.response(status, summaries.first()) });
        self.event(&format!("response.{status}"), response, stream);
    }

    fn fail(&mut self, error: &ApiError, stream: &mut StreamBuffer) {
        let error = error.json()["error"].clone();
        let fields = json!({ "code": error["code"], "message": error["message"], "param": error["param"] });
        self.event("error", fields, stream);
        let mut response = self.response("failed", None);
        response["error"] = json!({ "code": "server_error", "message": error["message"] });
        self.event("response.failed", json!({ "response": response }), stream);
    }
}
