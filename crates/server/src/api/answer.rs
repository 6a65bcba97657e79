//! From a request's events to the objects that stand in answers and chunks.

use selfspec_engine::{Engine, Event, FinishReason, Progress, Summary, TokenEvent};
use selfspec_model::TokenId;
use selfspec_speculate::{DrafterKind, DrafterStats};
use serde_json::{Map, Value, json};

use crate::api::calls::{Speech, message};
use crate::api::events::Events;
use crate::api::request::Asked;
use crate::error::ApiError;

/// Whether a request is a chat or a completion: they differ in the names of objects and in how text and log-probabilities are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Chat,
    Completion,
}

impl Kind {
    /// The field that holds the prompt.
    pub(crate) fn prompt(self) -> &'static str {
        match self {
            Kind::Chat => "messages",
            Kind::Completion => "prompt",
        }
    }
}

/// What every answer and chunk of a request begins with.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) created: u64, // seconds since 1970
    pub(crate) model: String,
    pub(crate) fingerprint: String,
}

impl Head {
    /// An object with the head's fields; `chunk`: of a stream.
    pub(crate) fn object(&self, chunk: bool) -> Map<String, Value> {
        let object = match (self.kind, chunk) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Completion, _) => "text_completion",
        };
        let mut map = Map::new();
        map.insert("id".to_owned(), self.id.clone().into());
        map.insert("object".to_owned(), object.into());
        map.insert("created".to_owned(), self.created.into());
        map.insert("model".to_owned(), self.model.clone().into());
        map.insert("system_fingerprint".to_owned(), self.fingerprint.clone().into());
        map
    }
}

/// The API's word for why a text ended. A full context is a length.
pub(crate) fn finish_word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::Length | FinishReason::Context => "length",
    }
}

/// One finished choice.
struct Choice {
    tokens: Vec<TokenEvent>,
    summary: Summary,
}

/// Waits for all choices and puts the answer together.
///
/// # Errors
/// A choice failed.
pub(crate) async fn whole(head: &Head, engine: &Engine, mut events: Events, asked: &Asked) -> Result<Value, ApiError> {
    let mut tokens: Vec<Vec<TokenEvent>> = vec![Vec::new(); asked.choices];
    let mut done: Vec<Option<Choice>> = (0..asked.choices).map(|_| None).collect();
    while let Some((index, event)) = events.next().await {
        match event {
            Event::Prompt { .. } => {}
            Event::Token(token) => {
                if asked.logprobs.is_some() || asked.tokens {
                    tokens[index].push(token);
                }
            }
            Event::Done(summary) => {
                done[index] = Some(Choice { tokens: std::mem::take(&mut tokens[index]), summary: *summary });
            }
            Event::Failed(error) => return Err(error.into()),
        }
    }
    let done: Option<Vec<Choice>> = done.into_iter().collect();
    let done = done.ok_or_else(|| ApiError::internal("a choice ended without an answer"))?;
    let choice = |(index, choice): (usize, &Choice)| {
        let finish = finish_word(choice.summary.finish_reason);
        let logprobs = asked.logprobs.map(|_| logprobs_of(head.kind, engine, &choice.tokens, &mut 0));
        let mut object = match head.kind {
            Kind::Chat => {
                let mut speech = Speech::new(asked.calling.as_ref(), &head.id, index);
                let message = message(&mut speech, &choice.summary.text);
                let finish = speech.finish_word(finish);
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
            }
            Kind::Completion => {
                json!({ "index": index, "text": choice.summary.text, "logprobs": logprobs, "finish_reason": finish })
            }
        };
        if asked.tokens {
            object["tokens"] = tokens_of(&choice.tokens);
        }
        object
    };
    let mut answer = head.object(false);
    answer.insert("choices".to_owned(), done.iter().enumerate().map(choice).collect::<Vec<Value>>().into());
    let summaries: Vec<&Summary> = done.iter().map(|choice| &choice.summary).collect();
    answer.insert("usage".to_owned(), usage(&summaries));
    answer.insert("timings".to_owned(), timings(&summaries.iter().map(|s| s.progress()).collect::<Vec<_>>()));
    Ok(answer.into())
}

/// Tokens of a request: its prompt once, and what all choices said.
pub(crate) fn usage(summaries: &[&Summary]) -> Value {
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
            "accepted_prediction_tokens": predicted(|drafts| drafts.accepted),
            "rejected_prediction_tokens": predicted(|drafts| drafts.drafted - drafts.accepted),
        },
    })
}

/// Times and drafts, with the names that llama-server has for them, and `rounds`, the passes of the full model; of several choices the
/// longest times.
pub(crate) fn timings(choices: &[Progress]) -> Value {
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

/// Some tokens one by one: their texts, joined, are the text of the choice or chunk that they stand in.
pub(crate) fn tokens_of(tokens: &[TokenEvent]) -> Value {
    tokens.iter().map(|t| json!({ "id": t.id, "text": t.text, "source": t.source.to_string() })).collect()
}

/// The log-probabilities of some tokens as the API has them.
///
/// `offset`: characters of the choice's tokens before these; it is moved behind them.
pub(crate) fn logprobs_of(kind: Kind, engine: &Engine, tokens: &[TokenEvent], offset: &mut usize) -> Value {
    let bytes = |id: TokenId| engine.tokenizer().and_then(|t| t.bytes(id)).unwrap_or_default().to_vec();
    let text = |id: TokenId| String::from_utf8_lossy(&bytes(id)).into_owned();
    let pair = |id: TokenId, logprob: f32| json!({ "token": text(id), "logprob": finite(logprob), "bytes": bytes(id) });
    match kind {
        Kind::Chat => {
            let entry = |token: &TokenEvent| {
                let (logprob, top) = token.logprob.as_ref().map_or((0.0, &[][..]), |l| (l.logprob, &l.top[..]));
                let mut entry = pair(token.id, logprob);
                entry["top_logprobs"] = top.iter().map(|(id, logprob)| pair(*id, *logprob)).collect::<Vec<_>>().into();
                entry
            };
            json!({ "content": tokens.iter().map(entry).collect::<Vec<_>>() })
        }
        Kind::Completion => {
            let own = |token: &TokenEvent| token.logprob.as_ref().map_or(0.0, |l| finite(l.logprob));
            let top = |token: &TokenEvent| {
                let top = token.logprob.iter().flat_map(|l| &l.top);
                Value::Object(top.map(|(id, logprob)| (text(*id), finite(*logprob).into())).collect())
            };
            let place = |token: &TokenEvent| {
                let length = text(token.id).chars().count();
                std::mem::replace(offset, *offset + length)
            };
            json!({
                "text_offset": tokens.iter().map(place).collect::<Vec<_>>(),
                "tokens": tokens.iter().map(|t| text(t.id)).collect::<Vec<_>>(),
                "token_logprobs": tokens.iter().map(own).collect::<Vec<_>>(),
                "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            })
        }
    }
}

/// JSON has no infinities.
fn finite(logprob: f32) -> f64 {
    f64::from(logprob.max(-9999.0))
}
