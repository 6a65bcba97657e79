//! A compiled grammar, and where a text stands in it.

use std::fmt;
use std::sync::Arc;

use llguidance::Matcher;

use crate::error::TextError;

/// A compiled grammar.
#[derive(Clone)]
pub struct Grammar {
    start: GrammarState,
    bytes: usize,
}

impl Grammar {
    pub(crate) fn new(start: GrammarState, bytes: usize) -> Self {
        Grammar { start, bytes }
    }

    /// Estimate of the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state before the first token.
    pub fn begin(&self) -> GrammarState {
        // The automaton adds states while it runs. They belong to the request, and go with it.
        GrammarState { matcher: self.start.matcher.deep_clone(), ..self.start.clone() }
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

/// A grammar and the tokens that it has taken so far. What it answers depends on these alone.
#[derive(Clone)]
pub struct GrammarState {
    matcher: Matcher,
    eos: Arc<[u32]>,
    ended: usize, // tokens that end a text, taken last
}

impl fmt::Debug for GrammarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarState").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl GrammarState {
    /// The state before the first token. `eos`: the tokens that end a text.
    pub(crate) fn new(matcher: Matcher, eos: Arc<[u32]>) -> Self {
        GrammarState { matcher, eos, ended: 0 }
    }

    /// The tokens that may come next, never none: token t is bit `t % 32` of word `t / 32`. When
    /// the text is complete, the tokens that end it are among them.
    ///
    /// # Errors
    /// [`TextError::Grammar`]: the grammar is too complex at this place, or no token can continue
    /// the text.
    pub fn allowed(&mut self) -> Result<Vec<u32>, TextError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| grammar_error(&error))?;
        Ok(mask.as_slice().to_vec())
    }

    /// Takes a token; false, and nothing changes, if it may not come next.
    ///
    /// # Errors
    /// As [`GrammarState::allowed`].
    pub fn push(&mut self, token: u32) -> Result<bool, TextError> {
        let error = |error| grammar_error(&error);
        if self.ended > 0 {
            return Ok(false);
        }
        if self.eos.contains(&token) {
            let ends = self.matcher.is_stopped() || self.matcher.is_accepting().map_err(error)?;
            self.ended += usize::from(ends);
            return Ok(ends);
        }
        Ok(self.matcher.try_consume_tokens(&[token]).map_err(error)? == 1)
    }

    /// Takes the latest `n` tokens back.
    ///
    /// # Errors
    /// As [`GrammarState::allowed`].
    pub fn pop(&mut self, n: usize) -> Result<(), TextError> {
        let ends = n.min(self.ended);
        self.ended -= ends;
        if n > ends { self.matcher.rollback(n - ends).map_err(|error| grammar_error(&error)) } else { Ok(()) }
    }

    /// The tokens that must come next, as far as they are known without a search; perhaps none.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.ended > 0 || self.matcher.is_stopped() { Vec::new() } else { self.matcher.compute_ff_tokens() }
    }
}

/// The library's words, without the state that it appends for its own developers.
pub(crate) fn grammar_error(error: &impl fmt::Display) -> TextError {
    let text = error.to_string();
    let end = ["\n<", "<non-verbose", "<state>", "<backtrace>"].iter().filter_map(|mark| text.find(mark)).min();
    let line = text[..end.unwrap_or(text.len())].trim().replace('\n', " ");
    let short: String = line.chars().take(300).collect();
    TextError::Grammar { why: if short.is_empty() { "it allows no text".to_owned() } else { short } }
}
