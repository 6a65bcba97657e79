//! The choice of a round: which drafter drafts, and how far.

use crate::policy::draft_prices::DraftPrices;
use crate::policy::stop_rule::StopRule;

/// What the next round drafts.
#[derive(Debug, Clone)]
pub(crate) struct DraftChoice {
    /// Index of the drafter in the policy.
    pub(crate) drafter: usize,
    /// Tokens to draft at most.
    pub(crate) k: usize,
    /// Whether a bonus row is verified.
    pub(crate) bonus: bool,
    /// The kind of offer; see [`Drafter::offer`](crate::draft::drafter::Drafter::offer).
    pub(crate) offer: usize,
    pub(crate) prices: DraftPrices,
    /// `None`: the round drafts `k` tokens.
    pub(crate) stop_rule: Option<StopRule>,
    /// Whether such offers pause if no draft is accepted: the round is a probe, and enough drafts
    /// were verified before it.
    pub(crate) last_try: bool,
}

/// The result of a round, as the policy learns from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundResult {
    /// Draft steps, each counted once for every sequence that waited for it.
    pub(crate) draft_steps: f64,
    /// Tokens drafted.
    pub(crate) drafted: usize,
    /// Of these, accepted.
    pub(crate) accepted: usize,
    /// Whether the draft after them was rejected.
    pub(crate) rejected: bool,
    /// Whether the last draft row proposed nothing.
    pub(crate) declined: bool,
    /// Tokens committed.
    pub(crate) committed: usize,
}
