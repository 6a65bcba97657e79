//! The marks around a model's reasoning, and where an output stands between them.

use selfspec_model::TokenId;
use selfspec_text::Tokenizer;

/// The tokens that begin and end the reasoning before an answer, as `<think>` and `</think>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// The token before the reasoning.
    pub open: TokenId,
    /// The token after it.
    pub close: TokenId,
}

/// Where an output stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReasoningPhase {
    /// Before the first token, which decides whether the output begins with reasoning.
    Start,
    /// In the reasoning.
    Reasoning,
    /// In the answer, where marks are tokens like others.
    Answer,
}

impl ReasoningMarks {
    /// The phase of an output after this prompt. A template may open the reasoning, or open and
    /// close it, at the prompt's end: the last mark of the turn decides.
    pub(crate) fn phase_after(self, prompt: &[TokenId], tokenizer: &Tokenizer) -> ReasoningPhase {
        for token in prompt.iter().rev() {
            match *token {
                token if token == self.open => return ReasoningPhase::Reasoning,
                token if token == self.close => return ReasoningPhase::Answer,
                // A turn begins with a control token.
                token if tokenizer.is_control(token) => return ReasoningPhase::Start,
                _ => {}
            }
        }
        ReasoningPhase::Start
    }

    /// The phase after a token of the output, and whether the token is a mark.
    pub(crate) fn step(self, phase: ReasoningPhase, token: TokenId) -> (ReasoningPhase, bool) {
        match phase {
            ReasoningPhase::Start if token == self.open => (ReasoningPhase::Reasoning, true),
            ReasoningPhase::Reasoning if token == self.close => (ReasoningPhase::Answer, true),
            ReasoningPhase::Reasoning => (ReasoningPhase::Reasoning, false),
            ReasoningPhase::Start | ReasoningPhase::Answer => (ReasoningPhase::Answer, false),
        }
    }
}
