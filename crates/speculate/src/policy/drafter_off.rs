//! Why a drafter is off, as data. `crate::words` has the sentence.

use crate::draft::kind::DrafterKind;
use crate::draft::path::DraftPath;

/// What speaks against drafting. Speed-ups are over plain decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DrafterOffCause {
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
}

/// A drafter that is off, and the figures behind it when it was turned off.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterOff {
    /// The drafter.
    pub drafter: DrafterKind,
    /// What spoke against it.
    pub cause: DrafterOffCause,
    /// Expected acceptance rate of a draft.
    pub acceptance: f64,
    /// Verified drafts behind that rate, older ones at a lower weight.
    pub judged: f64,
    /// The path of its draft rows, and the cost of one draft step in plain steps; `None` if it
    /// copies.
    pub draft_step: Option<(DraftPath, f64)>,
    /// Tokens of the draft that was priced.
    pub draft_len: usize,
    /// The cost of its verification in plain steps.
    pub verification: f64,
}
