//! Answers as server-sent events, as OpenAI's clients expect them: the role first, then text, the reason of the end, usage if it was asked for, and `[DONE]`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use selfspec_engine::{Engine, Event, Progress, Summary, TokenEvent};
use serde_json::{Value, json};

use crate::api::answer::{Head, Kind, finish_word, logprobs_of, timings, tokens_of, usage};
use crate::api::calls::{Part, Speech};
use crate::api::events::Events;
use crate::api::request::Asked;
use crate::error::ApiError;

/// A stream on its way.
struct Stream {
    head: Head,
    engine: Arc<Engine>,
    events: Option<Events>,
    asked: Asked,
    speeches: Vec<Speech>,           // (choice)
    progress: Vec<Option<Progress>>, // (choice)
    done: Vec<Option<Summary>>,      // (choice)
    offsets: Vec<usize>,             // (choice): characters of the tokens whose log-probabilities have been told
    chunks: VecDeque<Bytes>,         // ready to be sent
}

/// Answers with a stream of the events.
pub(crate) fn answer(head: Head, engine: Arc<Engine>, events: Events, asked: Asked) -> Response {
    let choices = asked.choices;
    let mut stream = Stream {
        speeches: (0..choices).map(|index| Speech::new(asked.calling.as_ref(), &head.id, index)).collect(),
        head,
        engine,
        events: Some(events),
        asked,
        progress: vec![None; choices],
        done: vec![None; choices],
        offsets: vec![0; choices],
        chunks: VecDeque::new(),
    };
    if stream.head.kind == Kind::Chat {
        for index in 0..choices {
            stream.chunk(json!({
                "index": index,
                "delta": { "role": "assistant", "content": "" },
                "logprobs": null,
                "finish_reason": null,
            }));
        }
    }
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), stream))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

impl Stream {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.chunks.pop_front() {
                return Some(bytes);
            }
            let events = self.events.as_mut()?;
            let Some((index, event)) = events.next().await else {
                self.end();
                continue;
            };
            // What a round committed is there at once, and goes into one chunk.
            let mut ready = vec![(index, event)];
            while let Some(more) = events.ready() {
                ready.push(more);
            }
            self.take(ready);
        }
    }

    fn take(&mut self, ready: Vec<(usize, Event)>) {
        let mut tokens: Vec<Vec<TokenEvent>> = vec![Vec::new(); self.done.len()];
        for (index, event) in ready {
            match event {
                Event::Prompt { .. } => {}
                Event::Token(token) => tokens[index].push(token),
                Event::Done(summary) => {
                    self.text(index, std::mem::take(&mut tokens[index]));
                    let rest = self.speeches[index].finish();
                    self.parts(index, rest, Value::Null, Value::Null);
                    let finish = self.speeches[index].finish_word(finish_word(summary.finish_reason));
                    let choice = match self.head.kind {
                        Kind::Chat => {
                            json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish })
                        }
                        Kind::Completion => {
                            json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish })
                        }
                    };
                    self.progress[index] = Some(summary.progress());
                    self.done[index] = Some(*summary);
                    self.chunk(choice);
                }
                Event::Failed(error) => {
                    // The head of the answer is gone already: the error is an event, and the stream ends.
                    self.push(&ApiError::from(error).json());
                    self.chunks.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
                    self.events = None;
                    return;
                }
            }
        }
        for (index, tokens) in tokens.into_iter().enumerate() {
            self.text(index, tokens);
        }
    }

    fn text(&mut self, index: usize, tokens: Vec<TokenEvent>) {
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        let Some(last) = tokens.last() else { return };
        self.progress[index] = Some(last.progress);
        let offset = &mut self.offsets[index];
        let logprobs = self.asked.logprobs.map(|_| logprobs_of(self.head.kind, &self.engine, &tokens, offset));
        if text.is_empty() && logprobs.is_none() && !self.asked.tokens {
            return;
        }
        let tokens = if self.asked.tokens { tokens_of(&tokens) } else { Value::Null };
        let mut parts = self.speeches[index].push(text);
        if parts.is_empty() && (logprobs.is_some() || self.asked.tokens) {
            parts.push(Part::Text(String::new())); // held back; the tokens are told of now
        }
        self.parts(index, parts, logprobs.unwrap_or_default(), tokens);
    }

    /// Chunks of what the text of a choice comes to; the first has the tokens and their log-probabilities.
    fn parts(&mut self, index: usize, parts: Vec<Part>, mut logprobs: Value, mut tokens: Value) {
        for part in parts {
            let pieces = match (self.head.kind, part) {
                (Kind::Completion, Part::Text(text)) => vec![("text", text.into())],
                (_, part) => part.deltas().into_iter().map(|delta| ("delta", delta)).collect(),
            };
            for (field, piece) in pieces {
                let logprobs = logprobs.take();
                let mut choice = json!({ "index": index, field: piece, "logprobs": logprobs, "finish_reason": null });
                if !tokens.is_null() {
                    choice["tokens"] = tokens.take();
                }
                self.chunk(choice);
            }
        }
    }

    /// All choices are over.
    fn end(&mut self) {
        self.events = None;
        let done: Vec<Summary> = self.done.iter_mut().filter_map(Option::take).collect();
        if self.asked.usage {
            let summaries: Vec<&Summary> = done.iter().collect();
            let mut last = self.head.object(true);
            last.insert("choices".to_owned(), json!([]));
            last.insert("usage".to_owned(), usage(&summaries));
            last.insert("timings".to_owned(), self.timings());
            self.push(&last.into());
        }
        self.chunks.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }

    fn chunk(&mut self, choice: Value) {
        let mut chunk = self.head.object(true);
        chunk.insert("choices".to_owned(), json!([choice]));
        if self.asked.usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        if self.asked.timings && self.progress.iter().any(Option::is_some) {
            chunk.insert("timings".to_owned(), self.timings());
        }
        self.push(&chunk.into());
    }

    /// Of all choices, as far as they have come.
    fn timings(&self) -> Value {
        timings(&self.progress.iter().flatten().copied().collect::<Vec<_>>())
    }

    fn push(&mut self, value: &Value) {
        self.chunks.push_back(format!("data: {value}\n\n").into());
    }
}
