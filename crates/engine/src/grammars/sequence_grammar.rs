//! A compiled grammar as the constraint of a sequence's tokens.

use selfspec_model::TokenId;
use selfspec_speculate::{TokenConstraint, TokenMask};
use selfspec_text::{Grammar, GrammarState, TextError};

/// The grammar of a sequence: the tokens that it allows next.
///
/// The automaton adds states as it runs, also for rejected drafts, and the number of states is
/// bounded. When it is full it is built again from the committed tokens, so drafts never decide
/// whether it can go on.
#[derive(Debug)]
pub(crate) struct SequenceGrammar {
    grammar: Grammar,
    state: GrammarState,
    tokens: Vec<TokenId>, // that the state has taken
}

impl SequenceGrammar {
    pub(crate) fn new(grammar: &Grammar) -> Self {
        SequenceGrammar { grammar: grammar.clone(), state: grammar.begin(), tokens: Vec::new() }
    }

    /// Does `work` with the state. If that fails, does it once more with a rebuilt state.
    fn with_state<T>(&mut self, work: impl Fn(&mut GrammarState) -> Result<T, TextError>) -> Result<T, String> {
        if let Ok(done) = work(&mut self.state) {
            return Ok(done);
        }
        self.rebuild()?;
        work(&mut self.state).map_err(why)
    }

    /// The tokens that may come next, as bits: token t is bit `t % 32` of word `t / 32`.
    pub(crate) fn allowed_bits(&mut self) -> Result<Vec<u32>, String> {
        self.with_state(GrammarState::allowed)
    }

    /// Builds the state again from the tokens.
    fn rebuild(&mut self) -> Result<(), String> {
        self.state = self.grammar.begin();
        self.tokens.iter().try_for_each(|token| self.state.push(*token).map(|_| ())).map_err(why)
    }
}

/// The reason alone: the sequence adds the place.
fn why(error: TextError) -> String {
    match error {
        TextError::Grammar { why } => why,
        other => other.to_string(),
    }
}

impl TokenConstraint for SequenceGrammar {
    fn allowed(&mut self) -> Result<TokenMask, String> {
        self.allowed_bits().map(TokenMask::from_bits)
    }

    fn push(&mut self, token: TokenId) -> Result<bool, String> {
        let taken = self.with_state(|state| state.push(token))?;
        if taken {
            self.tokens.push(token);
        }
        Ok(taken)
    }

    fn pop(&mut self, n: usize) -> Result<(), String> {
        let left = self.tokens.len().saturating_sub(n);
        let popped = self.state.pop(n);
        self.tokens.truncate(left);
        // The rebuilt state holds the tokens that are left.
        if popped.is_err() { self.rebuild() } else { Ok(()) }
    }

    fn forced(&mut self) -> Vec<TokenId> {
        self.state.forced()
    }
}
