//! The source of a token of the output.

use std::fmt;

/// How a round got a committed token. The token is the same either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// A draft that the model accepted.
    Draft,
    /// The model's own, in place of a draft that it rejected.
    Correction,
    /// The model's own, after it accepted all drafts of the round.
    Bonus,
    /// The model's own, in a round without drafts.
    Plain,
}

impl TokenSource {
    /// Whether the token was drafted and accepted.
    pub fn is_draft(self) -> bool {
        self == TokenSource::Draft
    }

    /// The source of a token in a round of `drafts` drafts. `draft`: whether the draft at its place
    /// was accepted; `None` without a draft there.
    pub(crate) fn of(draft: Option<bool>, drafts: usize) -> Self {
        match draft {
            Some(true) => TokenSource::Draft,
            Some(false) => TokenSource::Correction,
            None if drafts > 0 => TokenSource::Bonus,
            None => TokenSource::Plain,
        }
    }
}

/// `draft`, `correction`, `bonus` or `plain`.
impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenSource::Draft => "draft",
            TokenSource::Correction => "correction",
            TokenSource::Bonus => "bonus",
            TokenSource::Plain => "plain",
        })
    }
}
