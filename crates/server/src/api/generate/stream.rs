//! Streams the events of all choices as they come.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use selfspec_engine::{Event, Progress, RequestSummary, TokenEvent};

use crate::api::generate::events::GenerationEvents;
use crate::api::generate::pieces::OutputSplitter;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, ChoiceDelta, StreamBuffer};
use crate::api::request::OutputOptions;
use crate::error::ApiError;

/// A stream that is being sent.
struct AnswerStream<W> {
    writer: W,
    events: Option<GenerationEvents>, // `None`: the stream ends with what is in the buffer
    output: OutputOptions,
    splitters: Vec<OutputSplitter>,    // (choice)
    progress: Vec<Option<Progress>>,   // (choice)
    done: Vec<Option<RequestSummary>>, // (choice)
    buffer: StreamBuffer,
}

/// Answers with a stream of the events. `splitters`: shape (choice).
pub(crate) fn respond(
    mut writer: impl AnswerWriter,
    events: GenerationEvents,
    splitters: Vec<OutputSplitter>,
    output: OutputOptions,
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
    };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), stream))
    });
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

impl<W: AnswerWriter> AnswerStream<W> {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.buffer.pop() {
                return Some(bytes);
            }
            let events = self.events.as_mut()?;
            let Some((index, event)) = events.next().await else {
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
