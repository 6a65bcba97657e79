//! Why a round was as it was.

use std::fmt;

/// Why a round drafted, or did not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The request has no drafter.
    Off,
    /// The request wants drafts whatever they cost.
    Always,
    /// The highest expected speed-up of all that could be done.
    Pays {
        /// It.
        gain: f64,
    },
    /// Drafts that are tried to learn how they fare.
    Probe {
        /// What is expected so far.
        gain: f64,
    },
    /// No drafter has a proposal.
    NoOffer,
    /// No draft can be used: one token is left to generate.
    Last,
    /// A plain step is timed, which nothing measured yet, or not for long.
    Timing,
    /// A draft row was run, and its draft is too unsure to be worth its verification.
    Unsure,
    /// Drafting is not expected to pay.
    Slow {
        /// The expected speed-up.
        gain: f64,
    },
    /// Only one draft a round would pay, where the sliding window sets their number.
    Short {
        /// The expected speed-up.
        gain: f64,
    },
    /// Drafts have cost too much so far.
    Debt {
        /// Plain steps lost.
        lost: f64,
    },
    /// The prompt's last token, which nothing was drafted for.
    Prompt,
}

impl Reason {
    /// The names of all reasons.
    pub const NAMES: [&'static str; 12] =
        ["off", "always", "pays", "probe", "no_offer", "last", "timing", "unsure", "slow", "short", "debt", "prompt"];

    /// Its place in [`Reason::NAMES`].
    pub fn index(&self) -> usize {
        match self {
            Reason::Off => 0,
            Reason::Always => 1,
            Reason::Pays { .. } => 2,
            Reason::Probe { .. } => 3,
            Reason::NoOffer => 4,
            Reason::Last => 5,
            Reason::Timing => 6,
            Reason::Unsure => 7,
            Reason::Slow { .. } => 8,
            Reason::Short { .. } => 9,
            Reason::Debt { .. } => 10,
            Reason::Prompt => 11,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Off => f.write_str("speculation is off"),
            Reason::Always => f.write_str("always drafts"),
            Reason::Pays { gain } => write!(f, "pays: predicted speed-up {gain:.2}"),
            Reason::Probe { gain } => write!(f, "probe: predicted speed-up {gain:.2} so far"),
            Reason::NoOffer => f.write_str("nothing to propose"),
            Reason::Last => f.write_str("one token left"),
            Reason::Timing => f.write_str("times a plain step"),
            Reason::Unsure => f.write_str("the draft is too unsure"),
            Reason::Slow { gain } => write!(f, "does not pay: predicted speed-up {gain:.2}"),
            Reason::Short { gain } => write!(f, "best draft length 1, predicted speed-up {gain:.2}"),
            Reason::Debt { lost } => write!(f, "has cost {lost:.1} plain steps so far"),
            Reason::Prompt => f.write_str("end of the prompt"),
        }
    }
}
