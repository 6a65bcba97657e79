//! The tokens that may come next: the constraint of a grammar, and its state within a round.

use std::fmt;

use selfspec_model::TokenId;

/// The set of tokens that may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMask(Vec<u32>);

impl TokenMask {
    /// The set with these bits: token t is bit `t % 32` of word `t / 32`. Tokens beyond the last
    /// word are not in it. Shape: (vocabulary / 32, rounded up).
    pub fn from_bits(bits: Vec<u32>) -> Self {
        TokenMask(bits)
    }

    /// Whether `token` is in the set.
    pub fn contains(&self, token: TokenId) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Sets the logits of tokens outside the set to minus infinity. Logit i is that of the i-th of
    /// `tokens`, or of token i where that is `None`. Shape of `row`: (tokens).
    pub(crate) fn apply(&self, tokens: Option<&[TokenId]>, row: &mut [f32]) {
        match tokens {
            Some(tokens) => {
                for (logit, token) in row.iter_mut().zip(tokens) {
                    if !self.contains(*token) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            None => {
                let words = self.0.iter().copied().chain(std::iter::repeat(0));
                for (chunk, word) in row.chunks_mut(32).zip(words) {
                    match word {
                        u32::MAX => {}
                        0 => chunk.fill(f32::NEG_INFINITY),
                        _ => {
                            for (bit, logit) in chunk.iter_mut().enumerate() {
                                if word >> bit & 1 == 0 {
                                    *logit = f32::NEG_INFINITY;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A constraint on the output: an automaton over tokens. Its answers depend only on the tokens that
/// it holds.
pub trait TokenConstraint: fmt::Debug + Send {
    /// The tokens that may come next, at least one.
    ///
    /// # Errors
    /// Why the constraint cannot compute them.
    fn allowed(&mut self) -> Result<TokenMask, String>;

    /// Adds a token. Returns false, and changes nothing, if it may not come next.
    ///
    /// # Errors
    /// Why the constraint cannot compute that.
    fn push(&mut self, token: TokenId) -> Result<bool, String>;

    /// Removes the latest `n` tokens.
    ///
    /// # Errors
    /// Why the constraint cannot remove them.
    fn pop(&mut self, n: usize) -> Result<(), String>;

    /// The tokens that must come next, in their order, as far as the constraint knows them at no
    /// cost; perhaps none.
    fn forced(&mut self) -> Vec<TokenId>;
}

/// The constraint of one sequence. Between rounds it holds the output.
///
/// As with the penalties, drafts are added when they are made, all removed before the verification,
/// and added again one by one as they are committed. The verification reuses the masks of the
/// draft, so that each mask is computed once.
#[derive(Debug)]
pub(crate) struct RoundConstraint {
    automaton: Box<dyn TokenConstraint>,
    drafts: usize,                 // in the automaton
    in_round: usize,               // tokens of the round in the automaton, the drafts included
    masks: Vec<Option<TokenMask>>, // after 0, 1, ... tokens of the round; copied drafts need none
}

impl RoundConstraint {
    /// A constraint on the whole output.
    pub(crate) fn new(automaton: Box<dyn TokenConstraint>) -> Self {
        RoundConstraint { automaton, drafts: 0, in_round: 0, masks: Vec::new() }
    }

    /// The tokens that must come next. Before a round.
    pub(crate) fn forced(&mut self) -> Vec<TokenId> {
        self.automaton.forced()
    }

    /// The mask of the token that comes next.
    pub(crate) fn mask(&mut self) -> Result<&TokenMask, String> {
        if self.masks.len() <= self.in_round {
            self.masks.resize(self.in_round + 1, None);
        }
        let known = &mut self.masks[self.in_round];
        Ok(match known {
            Some(mask) => mask,
            None => known.insert(self.automaton.allowed()?),
        })
    }

    /// Adds a draft; false if it may not come next. An automaton that fails here fails again, with
    /// an error, when the verification asks for its mask.
    pub(crate) fn draft(&mut self, token: TokenId) -> bool {
        let added = self.automaton.push(token).unwrap_or(false);
        self.in_round += usize::from(added);
        self.drafts += usize::from(added);
        added
    }

    /// Removes all drafts.
    pub(crate) fn drop_drafts(&mut self) -> Result<(), String> {
        let drafts = std::mem::take(&mut self.drafts);
        self.in_round -= drafts;
        self.automaton.pop(drafts)
    }

    /// Adds a committed token.
    pub(crate) fn commit(&mut self, token: TokenId) -> Result<(), String> {
        if !self.automaton.push(token)? {
            return Err(format!("token {token} stands where it may not"));
        }
        self.in_round += 1;
        Ok(())
    }

    /// Drops a round that will not be verified. An automaton that cannot remove the drafts fails
    /// when it is asked for its next mask.
    pub(crate) fn abandon_round(&mut self) {
        let _ = self.drop_drafts();
        self.end_round();
    }

    /// Ends the round: the automaton's tokens are part of the output now.
    pub(crate) fn end_round(&mut self) {
        self.in_round = 0;
        self.masks.clear();
    }
}
