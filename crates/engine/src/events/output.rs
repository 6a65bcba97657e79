//! From committed tokens to what the consumer sees: text, stop strings, events.
//!
//! Tokens go through one at a time, in order, however many a round committed. So the cut after an
//! end-of-text token or a stop string is at the same token with speculation as without, and tokens
//! committed after it are seen by nobody.

use std::sync::Arc;

use selfspec_model::TokenId;
use selfspec_speculate::CommittedToken;
use selfspec_text::{Detokenizer, StopMatcher, Tokenizer};

use crate::events::event::{Event, FinishReason, Progress, TokenEvent};
use crate::events::reasoning::{ReasoningMarks, ReasoningPhase};
use crate::events::sink::{EventSink, SinkDemand};

/// The text side of one sequence.
pub(crate) struct Output {
    text: Option<Text>,
    events: Box<dyn EventSink>,
    ids: Vec<TokenId>,
    whole: String, // the text that was sent
    reasoning: Option<(ReasoningMarks, ReasoningPhase)>,
    reasoning_tokens: usize,
    reasoning_bytes: usize,
    stopped_at: Option<usize>, // the stop string
}

/// What a token of the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenPart {
    Answer,
    Reasoning,
    /// A mark around the reasoning, which has no text.
    Mark,
}

struct Text {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    delta: String, // scratch: what a token adds, before stop strings
}

impl Output {
    /// `continues`: a space that comes first is text. Control tokens are left out of it, but for
    /// those `spelled`. Without a tokenizer there are ids and no text, and `stop` is not looked at.
    pub(crate) fn new(
        tokenizer: Option<Arc<Tokenizer>>,
        continues: bool,
        stop: Vec<String>,
        spelled: Vec<TokenId>,
        events: Box<dyn EventSink>,
    ) -> Self {
        let text = tokenizer.map(|tokenizer| Text {
            detokenizer: if continues { Detokenizer::continuing() } else { Detokenizer::new() }.spelling(spelled),
            stops: StopMatcher::new(stop),
            tokenizer,
            delta: String::new(),
        });
        let (ids, whole) = (Vec::new(), String::new());
        Output { text, events, ids, whole, reasoning: None, reasoning_tokens: 0, reasoning_bytes: 0, stopped_at: None }
    }

    /// The same, with reasoning before the answer. `phase`: where the output stands after the
    /// prompt.
    pub(crate) fn with_reasoning(self, reasoning: Option<(ReasoningMarks, ReasoningPhase)>) -> Self {
        Output { reasoning, ..self }
    }

    /// What the next token is.
    fn part(&mut self, id: TokenId) -> TokenPart {
        let Some((marks, phase)) = &mut self.reasoning else { return TokenPart::Answer };
        let (next, mark) = marks.step(*phase, id);
        *phase = next;
        match next {
            _ if mark => TokenPart::Mark,
            ReasoningPhase::Reasoning => TokenPart::Reasoning,
            ReasoningPhase::Start | ReasoningPhase::Answer => TokenPart::Answer,
        }
    }

    /// Takes the tokens of one round, after which the request has come as far as `progress` says.
    /// `ending` says why the sequence ended with the last of them, if it did. Returns why it has
    /// ended: a stop string may come first.
    pub(crate) fn take(
        &mut self,
        committed: &mut Vec<CommittedToken>,
        ending: Option<FinishReason>,
        progress: Progress,
    ) -> Option<FinishReason> {
        let last = committed.len().checked_sub(1)?;
        for (i, token) in committed.drain(..).enumerate() {
            let ending = ending.filter(|_| i == last);
            let mut text = String::new();
            let part = self.part(token.token);
            self.stopped_at = self.text.as_mut().and_then(|t| t.push(token.token, part, ending, &mut text));
            let reasoning = part != TokenPart::Answer;
            self.reasoning_tokens += usize::from(reasoning);
            self.reasoning_bytes += if reasoning { text.len() } else { 0 };
            self.ids.push(token.token);
            self.whole.push_str(&text);
            self.events.take(Event::Token(TokenEvent {
                id: token.token,
                text,
                reasoning,
                source: token.source,
                logprob: token.logprob,
                progress: Progress { tokens: self.ids.len(), ..progress },
            }));
            if self.stopped_at.is_some() {
                return Some(FinishReason::Stop);
            }
        }
        ending
    }

    /// Sends an event that is not a token.
    pub(crate) fn send(&mut self, event: Event) {
        self.events.take(event);
    }

    /// What the consumer wants.
    pub(crate) fn demand(&self) -> SinkDemand {
        self.events.demand()
    }

    /// Tokens so far.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The stop string that is complete.
    pub(crate) fn stop_string(&self) -> Option<usize> {
        self.stopped_at
    }

    /// Tokens of the reasoning so far, and bytes of its text.
    pub(crate) fn reasoning(&self) -> (usize, usize) {
        (self.reasoning_tokens, self.reasoning_bytes)
    }

    /// The tokens and the text that were sent; leaves both empty.
    pub(crate) fn take_all(&mut self) -> (Vec<TokenId>, String) {
        (std::mem::take(&mut self.ids), std::mem::take(&mut self.whole))
    }
}

impl Text {
    /// Appends to `out` the text that is certain after `id`; returns the stop string that is
    /// complete. The token of an end-of-text has no text, and with the sequence's last token
    /// everything held back comes out. Stop strings are looked for in the answer alone.
    fn push(&mut self, id: TokenId, part: TokenPart, ending: Option<FinishReason>, out: &mut String) -> Option<usize> {
        if part != TokenPart::Answer {
            if part == TokenPart::Reasoning && ending != Some(FinishReason::Stop) {
                self.detokenizer.push(&self.tokenizer, id, out);
            }
            if part == TokenPart::Mark || ending.is_some() {
                self.detokenizer.finish(out);
            }
            return None;
        }
        self.delta.clear();
        if ending != Some(FinishReason::Stop) {
            self.detokenizer.push(&self.tokenizer, id, &mut self.delta);
        }
        if let Some(stop) = self.stops.push(&self.delta, out) {
            return Some(stop);
        }
        if ending.is_some() {
            self.delta.clear();
            self.detokenizer.finish(&mut self.delta);
            if let Some(stop) = self.stops.push(&self.delta, out) {
                return Some(stop);
            }
            self.stops.finish(out);
        }
        None
    }
}
