//! What an engine answers: events in order, one stream a request.

use std::fmt;

use selfspec_model::TokenId;
use selfspec_model::TokenLogprob;
use selfspec_speculate::{RoundTrace, SpecStats, TokenSource};

use crate::error::EngineError;

/// One thing that happened to a request. A stream is `Prompt`, any number of `Token`, then `Done`
/// or `Failed`; a request that fails or is cancelled before its prompt is admitted skips to the
/// end.
#[derive(Debug)]
pub enum Event {
    /// The request was admitted.
    Prompt {
        /// Tokens of its prompt.
        tokens: usize,
    },
    /// A token was generated.
    Token(TokenEvent),
    /// The request ended as it should.
    Done(Box<RequestSummary>),
    /// The request ended with an error; other requests go on.
    Failed(EngineError),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenEvent {
    /// The token.
    pub id: TokenId,
    /// The text that became certain with it: whole characters, nothing that may yet turn out to
    /// belong to a stop string. Often empty, sometimes longer than the token. The texts of a
    /// stream, joined, are the generated text.
    pub text: String,
    /// Whether the token, and so its text, belongs to the reasoning before the answer. The marks
    /// around the reasoning belong to it and have no text.
    pub reasoning: bool,
    /// What its round got it from.
    pub source: TokenSource,
    /// Its log-probability, if the request asked for it.
    pub logprob: Option<TokenLogprob>,
    /// How far the request has come with it.
    pub progress: Progress,
}

/// How far a request has come. Times and what speculation did are as of the round that the latest
/// token belongs to: all tokens of a round come at once.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose KV an earlier request had left behind.
    pub cached_tokens: usize,
    /// Seconds from admission to the first token.
    pub prompt_s: f64,
    /// Seconds from the first token to the latest.
    pub predicted_s: f64,
    /// Tokens generated.
    pub tokens: usize,
    /// Passes of the full model that committed tokens.
    pub rounds: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Of these, accepted.
    pub accepted: u64,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An end-of-text token, a stop token or a stop string.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    Context,
    /// [`Generation::cancel`](crate::Generation::cancel).
    Cancelled,
}

impl From<selfspec_speculate::SequenceEnd> for FinishReason {
    fn from(reason: selfspec_speculate::SequenceEnd) -> Self {
        match reason {
            selfspec_speculate::SequenceEnd::Stop => FinishReason::Stop,
            selfspec_speculate::SequenceEnd::Length => FinishReason::Length,
            selfspec_speculate::SequenceEnd::Context => FinishReason::Context,
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Context => "context",
            FinishReason::Cancelled => "cancelled",
        })
    }
}

/// A finished request.
#[derive(Debug, Clone)]
pub struct RequestSummary {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Of the request's stop strings, the one that ended it.
    pub stop_string: Option<usize>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose KV an earlier request had left behind.
    pub cached_tokens: usize,
    /// Tokens generated: as many as `token_ids` holds and as there were token events.
    pub completion_tokens: usize,
    /// Seconds from submission to admission.
    pub queued_s: f64,
    /// Seconds from admission to the first token.
    pub prompt_s: f64,
    /// Seconds from the first token to the last.
    pub predicted_s: f64,
    /// The rounds after the first that gave a token.
    pub gaps: Vec<TokenGap>,
    /// What speculation did. Its counts are of whole rounds: tokens that a round accepted after a
    /// stop string are in them and nowhere else.
    pub stats: SpecStats,
    /// The latest rounds, oldest first, if the request asked for a trace.
    pub trace: Vec<RoundTrace>,
    /// The tokens generated.
    pub token_ids: Vec<TokenId>,
    /// The text generated: the token events' texts joined.
    pub text: String,
    /// Of the tokens, those of the reasoning, which come first.
    pub reasoning_tokens: usize,
    /// Of the text, the bytes of the reasoning, which come first.
    pub reasoning_bytes: usize,
}

impl RequestSummary {
    /// How far the request came.
    pub fn progress(&self) -> Progress {
        Progress {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            prompt_s: self.prompt_s,
            predicted_s: self.predicted_s,
            tokens: self.completion_tokens,
            rounds: self.stats.rounds,
            drafted: self.stats.drafted,
            accepted: self.stats.accepted,
        }
    }
}

/// The time between two rounds of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenGap {
    /// Seconds since the round before.
    pub seconds: f32,
    /// Tokens that the round gave.
    pub tokens: u32,
}
