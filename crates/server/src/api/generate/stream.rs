//! Streams the events of all choices as they come.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use selfspec_engine::{Event, Progress, RequestSummary, TokenEvent};
use tokio::time::Instant;

use crate::api::generate::events::GenerationEvents;
use crate::api::generate::pieces::OutputSplitter;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, StreamBuffer};
use crate::api::request::OutputOptions;
use crate::error::ApiError;
use crate::http::drain::DrainEnd;

/// A stream that is being sent.
struct AnswerStream<W> {
    writer: W,
    events: Option<GenerationEvents>, // `None`: the stream ends with what is in the buffer
    output: OutputOptions,
    splitters: Vec<OutputSplitter>,    // (choice)
    progress: Vec<Option<Progress>>,   // (choice)
    done: Vec<Option<RequestSummary>>, // (choice)
    buffer: StreamBuffer,
    life: StreamLife,
    sent: Instant, // the latest bytes
}

/// How long a stream may be silent, and when it must end.
pub(crate) struct StreamLife {
    pub(crate) keep_alive: Duration,
    pub(crate) drain: DrainEnd,
}

/// Answers with a stream of the events. `splitters`: shape (choice).
pub(crate) fn respond(
    mut writer: impl AnswerWriter,
    events: GenerationEvents,
    splitters: Vec<OutputSplitter>,
    output: OutputOptions,
    life: StreamLife,
) -> Response {
    let media_type = writer.stream_type();
    let mut buffer = StreamBuffer::default();
    writer.begin(&mut buffer);
    let choices = splitters.len();
    let stream = AnswerStream {
        writer,
        events: Some(events),
        output,
        splitters,
        progress: vec![None; choices],
        done: vec![None; choices],
        buffer,
        life,
        sent: Instant::now(),
    };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), stream))
    });
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-cache"),
        // nginx would send a stream in pieces of its buffer's size.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

impl<W: AnswerWriter> AnswerStream<W> {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.buffer.pop() {
                self.sent = Instant::now();
                return Some(bytes);
            }
            let events = self.events.as_mut()?;
            let next = tokio::select! {
                biased;
                () = self.life.drain.reached() => {
                    self.writer.fail(&ApiError::cut_off(), &mut self.buffer);
                    self.events = None;
                    continue;
                }
                next = events.next() => next,
                () = tokio::time::sleep_until(self.sent + self.life.keep_alive) => {
                    self.writer.keep_alive(&mut self.buffer);
                    self.sent = Instant::now();
                    continue;
                }
            };
            let Some((index, event)) = next else {
                self.events = None;
                let summaries: Vec<RequestSummary> = self.done.iter_mut().filter_map(Option::take).collect();
                self.writer.end(&summaries, &self.progress, &mut self.buffer);
                continue;
            };
            // The tokens that a round committed arrive together and become one delta.
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
                    self.delta(index, std::mem::take(&mut tokens[index]));
                    self.choice_end(index, *summary);
                }
                Event::Failed(error) => {
                    self.writer.fail(&ApiError::from(error), &mut self.buffer);
                    self.events = None;
                    return;
                }
            }
        }
        for (index, tokens) in tokens.into_iter().enumerate() {
            self.delta(index, tokens);
        }
    }

    fn delta(&mut self, index: usize, tokens: Vec<TokenEvent>) {
        let Some(last) = tokens.last() else { return };
        self.progress[index] = Some(last.progress);
        let text = |part: &[TokenEvent]| part.iter().map(|token| token.text.as_str()).collect::<String>();
        let (reasoning, answer) = tokens.split_at(tokens.partition_point(|token| token.reasoning));
        let splitter = &mut self.splitters[index];
        let mut pieces = Vec::new();
        if !reasoning.is_empty() {
            pieces.extend(splitter.push_reasoning(&text(reasoning)));
        }
        pieces.extend(splitter.push(text(answer)));
        if !pieces.is_empty() || self.output.lists_tokens() {
            self.writer.delta(ChoiceDelta { index, pieces, tokens }, &self.progress, &mut self.buffer);
        }
    }

    fn choice_end(&mut self, index: usize, summary: RequestSummary) {
        let pieces = self.splitters[index].finish();
        if !pieces.is_empty() {
            let delta = ChoiceDelta { index, pieces, tokens: Vec::new() };
            self.writer.delta(delta, &self.progress, &mut self.buffer);
        }
        let end = AnswerEnd::of(summary.finish_reason, self.splitters[index].has_calls());
        self.progress[index] = Some(summary.progress());
        self.writer.choice_end(index, end, &self.progress, &mut self.buffer);
        self.done[index] = Some(summary);
    }
}
