//! Which tokens may follow: the mask of a grammar, and what of it a round has used.

use std::fmt;

use selfspec_model::TokenId;

/// A set of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMask(Vec<u32>);

impl TokenMask {
    /// The set whose bits these are: token t is bit `t % 32` of word `t / 32`. Tokens beyond the last word are not in it.
    pub fn from_bits(bits: Vec<u32>) -> Self {
        TokenMask(bits)
    }

    /// Whether `token` is in the set.
    pub fn contains(&self, token: TokenId) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Makes the logits of tokens that are not in the set impossible. Logit i is that of the i-th of `tokens`; `None`: of token i.
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

/// An automaton over tokens. What it answers is a function of the tokens that it holds, however it came to hold them.
pub trait TokenConstraint: fmt::Debug + Send {
    /// The tokens that may come next: never none.
    ///
    /// # Errors
    /// Why it cannot say.
    fn allowed(&mut self) -> Result<TokenMask, String>;

    /// Takes a token. False, and nothing changes, if it may not come next.
    ///
    /// # Errors
    /// Why it cannot say.
    fn push(&mut self, token: TokenId) -> Result<bool, String>;

    /// Takes the latest `n` tokens back.
    ///
    /// # Errors
    /// Why it cannot.
    fn pop(&mut self, n: usize) -> Result<(), String>;

    /// The tokens that must come next, one after the other, as far as that is known without effort; perhaps none.
    fn forced(&mut self) -> Vec<TokenId>;
}

/// The automaton of one sequence. Between rounds it holds the output.
///
/// As with the history of penalties, drafts are taken when they are made, all taken back before the judgement, and taken again one by one as they are
/// committed. The masks that drafting has used serve the verification too: a mask is computed once.
#[derive(Debug)]
pub(crate) struct RoundConstraint {
    automaton: Box<dyn TokenConstraint>,
    drafts: usize,                 // that it holds
    taken: usize,                  // tokens of the round that it holds, the drafts included
    known: Vec<Option<TokenMask>>, // the masks after 0, 1, ... tokens of the round; what was copied needed none
}

impl RoundConstraint {
    /// A constraint on the whole output.
    pub(crate) fn new(automaton: Box<dyn TokenConstraint>) -> Self {
        RoundConstraint { automaton, drafts: 0, taken: 0, known: Vec::new() }
    }

    /// The tokens that must come next in a round that has not begun.
    pub(crate) fn forced(&mut self) -> Vec<TokenId> {
        self.automaton.forced()
    }

    /// The mask of the token that comes next.
    pub(crate) fn mask(&mut self) -> Result<&TokenMask, String> {
        if self.known.len() <= self.taken {
            self.known.resize(self.taken + 1, None);
        }
        let known = &mut self.known[self.taken];
        Ok(match known {
            Some(mask) => mask,
            None => known.insert(self.automaton.allowed()?),
        })
    }

    /// Takes a draft; false if it may not come next. An automaton that cannot say will say so when the verification asks for its mask.
    pub(crate) fn draft(&mut self, token: TokenId) -> bool {
        let taken = self.automaton.push(token).unwrap_or(false);
        self.taken += usize::from(taken);
        self.drafts += usize::from(taken);
        taken
    }

    /// Takes all drafts back.
    pub(crate) fn drop_drafts(&mut self) -> Result<(), String> {
        let drafts = std::mem::take(&mut self.drafts);
        self.taken -= drafts;
        self.automaton.pop(drafts)
    }

    /// Takes a token that stands.
    pub(crate) fn commit(&mut self, token: TokenId) -> Result<(), String> {
        if !self.automaton.push(token)? {
            return Err(format!("token {token} stands where it may not"));
        }
        self.taken += 1;
        Ok(())
    }

    /// Drops the drafts of a round that will not be judged. An automaton that cannot take them back will say so when it is asked for its mask.
    pub(crate) fn abandon_round(&mut self) {
        let _ = self.drop_drafts();
        self.end_round();
    }

    /// Ends the round: the tokens that the automaton holds are part of the output now.
    pub(crate) fn end_round(&mut self) {
        self.taken = 0;
        self.known.clear();
    }
}
