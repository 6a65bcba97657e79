//! The reason for a round's draft, as data. `crate::words` has the sentences.

/// Why a round drafted, or did not. Speed-ups are over plain decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RoundReason {
    /// The request has no drafter.
    Off,
    /// The request drafts in every round, whatever it costs.
    Always,
    /// The highest expected speed-up of all choices, and high enough.
    Pays {
        /// The expected speed-up.
        speedup: f64,
    },
    /// A probe: drafts that measure acceptance.
    Probe {
        /// The speed-up expected so far.
        speedup: f64,
    },
    /// No drafter has a proposal.
    NoOffer,
    /// No draft can be used: one token is left to generate.
    LastToken,
    /// A plain step is timed, because its time is unknown or old.
    TimesPlainStep,
    /// A draft row ran, and its confidence was too low to be worth the verification.
    LowConfidence,
    /// Drafting is not expected to pay.
    Unprofitable {
        /// The expected speed-up.
        speedup: f64,
    },
    /// Only one draft a round would pay, and the sliding window sets the draft length.
    BestLengthOne {
        /// The expected speed-up.
        speedup: f64,
    },
    /// The loss budget is spent.
    LossBudgetSpent {
        /// Plain steps lost so far.
        lost: f64,
    },
    /// The prompt's last token, before which nothing is drafted.
    Prompt,
}

impl RoundReason {
    /// The labels of all reasons, for metrics.
    pub const LABELS: [&'static str; 12] =
        ["off", "always", "pays", "probe", "no_offer", "last", "timing", "unsure", "slow", "short", "debt", "prompt"];

    /// Its index in [`RoundReason::LABELS`].
    pub fn index(&self) -> usize {
        match self {
            RoundReason::Off => 0,
            RoundReason::Always => 1,
            RoundReason::Pays { .. } => 2,
            RoundReason::Probe { .. } => 3,
            RoundReason::NoOffer => 4,
            RoundReason::LastToken => 5,
            RoundReason::TimesPlainStep => 6,
            RoundReason::LowConfidence => 7,
            RoundReason::Unprofitable { .. } => 8,
            RoundReason::BestLengthOne { .. } => 9,
            RoundReason::LossBudgetSpent { .. } => 10,
            RoundReason::Prompt => 11,
        }
    }
}
