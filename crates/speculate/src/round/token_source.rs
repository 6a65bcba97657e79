//! Where a token of the output comes from.

use std::fmt;

/// Whose choice a committed token was. The token itself is the same either way: this says what the round got it from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// A draft that the model accepted.
    Draft,
    /// The model's own, in place of a draft that it refused.
    Correction,
    /// The model's own, after it accepted all drafts of the round.
    Bonus,
    /// The model's own, in a round without drafts.
    Plain,
}

impl TokenSource {
    /// Whether the token was drafted and accepted, as opposed to drawn from the full model's own row.
    pub fn is_draft(self) -> bool {
        self == TokenSource::Draft
    }

    /// The source of a round's token: `draft` says whether there was a draft at its place, and whether it was accepted.
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
