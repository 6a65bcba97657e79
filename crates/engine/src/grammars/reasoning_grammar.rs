//! A grammar that applies to the answer, after free reasoning.

use selfspec_model::TokenId;
use selfspec_speculate::{TokenConstraint, TokenMask};

use crate::events::reasoning::{ReasoningMarks, ReasoningPhase};
use crate::grammars::sequence_grammar::SequenceGrammar;

/// The constraint of an output that may begin with reasoning. In the reasoning every token is
/// allowed but those that end a text; the grammar begins with the answer.
#[derive(Debug)]
pub(crate) struct ReasoningGrammar {
    answer: SequenceGrammar,
    in_answer: usize, // tokens of the answer
    marks: ReasoningMarks,
    first: ReasoningPhase,
    before: Vec<TokenId>, // the answer
    free: TokenMask,      // of the reasoning
}

impl ReasoningGrammar {
    /// `first`: the phase after the prompt. `eos`: the tokens that end a text.
    pub(crate) fn new(
        answer: SequenceGrammar,
        marks: ReasoningMarks,
        first: ReasoningPhase,
        vocab: usize,
        eos: &[TokenId],
    ) -> Self {
        let mut free = vec![u32::MAX; vocab.div_ceil(32)];
        for token in eos {
            if let Some(word) = free.get_mut(*token as usize / 32) {
                *word &= !(1 << (token % 32));
            }
        }
        ReasoningGrammar { answer, in_answer: 0, marks, first, before: Vec::new(), free: TokenMask::from_bits(free) }
    }

    fn phase(&self) -> ReasoningPhase {
        match self.before.last() {
            _ if self.in_answer > 0 => ReasoningPhase::Answer,
            None => self.first,
            Some(last) if *last == self.marks.close => ReasoningPhase::Answer,
            Some(_) => ReasoningPhase::Reasoning,
        }
    }
}

impl TokenConstraint for ReasoningGrammar {
    fn allowed(&mut self) -> Result<TokenMask, String> {
        match self.phase() {
            ReasoningPhase::Reasoning => Ok(self.free.clone()),
            ReasoningPhase::Answer => self.answer.allowed(),
            ReasoningPhase::Start => {
                let mut bits = self.answer.allowed_bits()?;
                if let Some(word) = bits.get_mut(self.marks.open as usize / 32) {
                    *word |= 1 << (self.marks.open % 32);
                }
                Ok(TokenMask::from_bits(bits))
            }
        }
    }

    fn push(&mut self, token: TokenId) -> Result<bool, String> {
        let allowed = match self.phase() {
            ReasoningPhase::Start if token == self.marks.open => true,
            ReasoningPhase::Reasoning => self.free.contains(token),
            ReasoningPhase::Start | ReasoningPhase::Answer => {
                let taken = self.answer.push(token)?;
                self.in_answer += usize::from(taken);
                return Ok(taken);
            }
        };
        self.before.extend(allowed.then_some(token));
        Ok(allowed)
    }

    fn pop(&mut self, n: usize) -> Result<(), String> {
        let of_answer = n.min(self.in_answer);
        self.in_answer -= of_answer;
        self.before.truncate(self.before.len().saturating_sub(n - of_answer));
        if of_answer > 0 { self.answer.pop(of_answer) } else { Ok(()) }
    }

    fn forced(&mut self) -> Vec<TokenId> {
        if self.phase() == ReasoningPhase::Answer { self.answer.forced() } else { Vec::new() }
    }
}
