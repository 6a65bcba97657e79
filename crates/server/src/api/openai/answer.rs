//! Objects that chat completions and completions share: the head of an answer, usage, timings,
//! tokens.

use selfspec_engine::{Progress, RequestSummary, TokenEvent};
use selfspec_speculate::{DrafterKind, DrafterStats};
use serde_json::{Map, Value, json};

use crate::api::generate::OutputPiece;
use crate::api::generate::writer::{AnswerEnd, StreamBuffer};
use crate::api::request::OutputOptions;
use crate::app_state::AnswerIdentity;
use crate::error::ApiError;

/// The fields at the head of every answer and chunk, and what else each of them has.
#[derive(Debug, Clone)]
pub(super) struct AnswerHead {
    id: String,
    object: &'static str,
    chunk_object: &'static str,
    identity: AnswerIdentity,
    output: OutputOptions,
}

impl AnswerHead {
    /// `prefix` of the id; `object` and `chunk_object`: the types of an answer and of a chunk.
    pub(super) fn new(
        identity: AnswerIdentity,
        prefix: &str,
        object: &'static str,
        chunk_object: &'static str,
        output: OutputOptions,
    ) -> Self {
        AnswerHead { id: format!("{prefix}-{}", identity.serial), object, chunk_object, identity, output }
    }

    pub(super) fn output(&self) -> OutputOptions {
        self.output
    }

    fn object(&self, object: &str) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("id".to_owned(), self.id.clone().into());
        map.insert("object".to_owned(), object.into());
        map.insert("created".to_owned(), self.identity.created.into());
        map.insert("model".to_owned(), self.identity.model.clone().into());
        map.insert("system_fingerprint".to_owned(), self.identity.fingerprint.clone().into());
        map
    }

    /// A whole answer.
    pub(super) fn answer(&self, choices: Vec<Value>, summaries: &[&RequestSummary]) -> Value {
        let mut answer = self.object(self.object);
        answer.insert("choices".to_owned(), choices.into());
        answer.insert("usage".to_owned(), usage(summaries));
        let timings = timings(&summaries.iter().map(|s| s.progress()).collect::<Vec<_>>());
        answer.insert("timings".to_owned(), with_drafters(timings, summaries));
        answer.into()
    }

    /// Adds a chunk with this choice. `progress`: shape (choice).
    pub(super) fn chunk(&self, choice: Value, progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        let mut chunk = self.object(self.chunk_object);
        chunk.insert("choices".to_owned(), json!([choice]));
        if self.output.usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        if self.output.timings && progress.iter().any(Option::is_some) {
            chunk.insert("timings".to_owned(), timings_so_far(progress));
        }
        stream.data(&chunk.into());
    }

    /// Ends the stream, with a chunk of usage if that was requested.
    pub(super) fn end(&self, summaries: &[RequestSummary], progress: &[Option<Progress>], stream: &mut StreamBuffer) {
        if self.output.usage {
            let summaries: Vec<&RequestSummary> = summaries.iter().collect();
            let mut last = self.object(self.chunk_object);
            last.insert("choices".to_owned(), json!([]));
            last.insert("usage".to_owned(), usage(&summaries));
            last.insert("timings".to_owned(), with_drafters(timings_so_far(progress), &summaries));
            stream.data(&last.into());
        }
        done(stream);
    }
}

/// Ends the stream with an error.
pub(super) fn fail(error: &ApiError, stream: &mut StreamBuffer) {
    stream.data(&error.json());
    done(stream);
}

fn done(stream: &mut StreamBuffer) {
    stream.push("data: [DONE]\n\n");
}

/// OpenAI's `finish_reason`.
pub(super) fn finish_reason(end: AnswerEnd) -> &'static str {
    match end {
        AnswerEnd::Stop => "stop",
        AnswerEnd::Length => "length",
        AnswerEnd::ToolCalls => "tool_calls",
    }
}

/// The text of pieces, without reasoning and tool calls.
pub(super) fn text_of(pieces: &[OutputPiece]) -> String {
    let texts = pieces.iter().filter_map(|piece| match piece {
        OutputPiece::Text(text) => Some(text.as_str()),
        OutputPiece::Reasoning(_) | OutputPiece::ToolCall { .. } => None,
    });
    texts.collect()
}

/// The reasoning in pieces.
pub(super) fn reasoning_of(pieces: &[OutputPiece]) -> String {
    let texts = pieces.iter().filter_map(|piece| match piece {
        OutputPiece::Reasoning(text) => Some(text.as_str()),
        OutputPiece::Text(_) | OutputPiece::ToolCall { .. } => None,
    });
    texts.collect()
}

/// Token counts of a request: its prompt once, and the tokens of all choices.
fn usage(summaries: &[&RequestSummary]) -> Value {
    let prompt = summaries.first().map_or(0, |s| s.prompt_tokens);
    let cached = summaries.first().map_or(0, |s| s.cached_tokens);
    let completion: usize = summaries.iter().map(|s| s.completion_tokens).sum();
    let predicted = |count: fn(&DrafterStats) -> u64| -> u64 {
        summaries.iter().map(|s| count(s.stats.drafter(DrafterKind::Prediction))).sum()
    };
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": {
            "reasoning_tokens": summaries.iter().map(|s| s.reasoning_tokens).sum::<usize>(),
            "accepted_prediction_tokens": predicted(|drafts| drafts.accepted),
            "rejected_prediction_tokens": predicted(|drafts| drafts.drafted - drafts.accepted),
        },
    })
}

pub(crate) fn timings_so_far(progress: &[Option<Progress>]) -> Value {
    timings(&progress.iter().flatten().copied().collect::<Vec<_>>())
}

/// Times and draft counts under llama-server's names, and `rounds`. Times are the longest of all
/// choices.
fn timings(choices: &[Progress]) -> Value {
    let longest = |time: fn(&Progress) -> f64| choices.iter().map(time).fold(0.0, f64::max) * 1e3;
    let (prompt_ms, predicted_ms) = (longest(|p| p.prompt_s), longest(|p| p.predicted_s));
    let prompt: usize = choices.first().map_or(0, |p| p.prompt_tokens - p.cached_tokens);
    let predicted: usize = choices.iter().map(|p| p.tokens).sum();
    let rate = |n: usize, ms: f64| if ms > 0.0 { n as f64 * 1e3 / ms } else { 0.0 };
    json!({
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_second": rate(prompt, prompt_ms),
        "predicted_n": predicted,
        "predicted_ms": predicted_ms,
        "predicted_per_second": rate(predicted.saturating_sub(choices.len()), predicted_ms),
        "draft_n": choices.iter().map(|p| p.drafted).sum::<u64>(),
        "draft_n_accepted": choices.iter().map(|p| p.accepted).sum::<u64>(),
        "rounds": choices.iter().map(|p| p.rounds).sum::<u64>(),
    })
}

/// Timings with the draft counts of each drafter that drafted.
fn with_drafters(mut timings: Value, summaries: &[&RequestSummary]) -> Value {
    let count = |kind: DrafterKind, of: fn(&DrafterStats) -> u64| -> u64 {
        summaries.iter().map(|s| of(s.stats.drafter(kind))).sum()
    };
    let drafters: Map<String, Value> = DrafterKind::ALL
        .into_iter()
        .filter(|kind| count(*kind, |drafts| drafts.drafted) > 0)
        .map(|kind| {
            let (drafted, accepted) = (count(kind, |drafts| drafts.drafted), count(kind, |drafts| drafts.accepted));
            (kind.flag().to_owned(), json!({ "draft_n": drafted, "draft_n_accepted": accepted }))
        })
        .collect();
    timings["drafters"] = drafters.into();
    timings
}

/// Single tokens. Their texts, joined, are the text of the choice or chunk.
pub(crate) fn token_list(tokens: &[TokenEvent]) -> Value {
    tokens.iter().map(|t| json!({ "id": t.id, "text": t.text, "source": t.source.to_string() })).collect()
}
