//! Choosing tokens on the device that holds the logits.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::row::TokenId;

/// Why no token can be chosen from a row of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitsError {
    /// A logit is not a number.
    NotANumber,
    /// A logit is plus infinity.
    Infinite,
    /// Every logit is minus infinity.
    NothingPossible,
}

impl fmt::Display for LogitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogitsError::NotANumber => "a logit is not a number",
            LogitsError::Infinite => "a logit is infinite",
            LogitsError::NothingPossible => "no token is possible",
        })
    }
}

/// Why a row has no choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoChoice {
    /// Its logits cannot be sampled from.
    Logits(LogitsError),
    /// Choosing panicked, with this message. Other rows of the step are not affected.
    Panic(String),
}

/// Log-probability of a token, and the best alternatives.
///
/// From the log-softmax of the model's raw logits, before any transform of sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The most probable tokens, best first, ties to the lowest id.
    pub top: Vec<(TokenId, f32)>,
}

/// The token chosen from a row of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenChoice {
    /// The token.
    pub token: TokenId,
    /// Whether the row verified a draft, and the token is that draft, accepted.
    pub accepted: bool,
    /// Probability of the row's most probable token; 0 where the request did not ask for it.
    pub confidence: f32,
    /// The token's log-probability, where the request asks for it.
    pub logprob: Option<TokenLogprob>,
}

/// Chooses the tokens of a step's rows. Called once for each row that it chooses, on any thread.
///
/// The choice is a pure function of the row's logits and of what the caller fixed before the step:
/// parameters, history, seed, position, and the draft to verify. So it depends on no other row and
/// on no order of calls.
pub trait ChooseToken: Sync {
    /// Whether the token of the step's row `row` is chosen. Otherwise the row's logits leave the
    /// step.
    fn chooses(&self, row: usize) -> bool;

    /// Chooses the token of the step's row `row`. Shape of `logits`: the tokens of the row's
    /// readout.
    ///
    /// # Errors
    /// Logits that cannot be sampled from.
    fn choose(&self, row: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError>;
}

/// Chooses the token of a row, and keeps a panic to that row.
pub(crate) fn choose_token(choose: &dyn ChooseToken, row: usize, logits: &[f32]) -> Result<TokenChoice, NoChoice> {
    match catch_unwind(AssertUnwindSafe(|| choose.choose(row, logits))) {
        Ok(choice) => choice.map_err(NoChoice::Logits),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(NoChoice::Panic(text.unwrap_or("a panic without a message").to_owned()))
        }
    }
}
