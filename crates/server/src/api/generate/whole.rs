//! Collects the events of all choices into one answer.

use selfspec_engine::{Event, TokenEvent};
use serde_json::Value;

use crate::api::generate::events::GenerationEvents;
use crate::api::generate::pieces::OutputSplitter;
use crate::api::generate::writer::{AnswerEnd, AnswerWriter, FinishedChoice};
use crate::api::request::OutputOptions;
use crate::error::ApiError;

/// Waits for all choices, and has the answer written. `splitters`: shape (choice).
///
/// # Errors
/// A choice failed.
pub(crate) async fn collect(
    mut writer: impl AnswerWriter,
    mut events: GenerationEvents,
    mut splitters: Vec<OutputSplitter>,
    output: OutputOptions,
) -> Result<Value, ApiError> {
    let mut tokens: Vec<Vec<TokenEvent>> = vec![Vec::new(); splitters.len()];
    let mut finished: Vec<Option<FinishedChoice>> = splitters.iter().map(|_| None).collect();
    while let Some((index, event)) = events.next().await {
        match event {
            Event::Prompt { .. } => {}
            Event::Token(token) => {
                if output.lists_tokens() {
                    tokens[index].push(token);
                }
            }
            Event::Done(summary) => {
                let splitter = &mut splitters[index];
                let (reasoning, text) = summary.text.split_at(summary.reasoning_bytes);
                let mut pieces = Vec::new();
                if summary.reasoning_tokens > 0 {
                    pieces.extend(splitter.push_reasoning(reasoning));
                }
                pieces.extend(splitter.push(text.to_owned()));
                pieces.extend(splitter.finish());
                let end = AnswerEnd::of(summary.finish_reason, splitter.has_calls());
                let tokens = std::mem::take(&mut tokens[index]);
                finished[index] = Some(FinishedChoice { pieces, tokens, summary: *summary, end });
            }
            Event::Failed(error) => return Err(error.into()),
        }
    }
    let finished: Option<Vec<FinishedChoice>> = finished.into_iter().collect();
    let finished = finished.ok_or_else(|| ApiError::internal("a choice ended without a summary"))?;
    Ok(writer.whole(&finished))
}
