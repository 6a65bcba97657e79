//! Whether a sequence in a batch keeps its exit head.
//!
//! Every row of the full plan writes the exit head's K and V, which costs time even if the head
//! drafts nothing. A sequence that drops the head does not get it back.

/// Rounds in a row without profit from the head, times the sequences in a step, after which a
/// sequence in a batch gives it up.
const MAX_UNPROFITABLE_ROUNDS: usize = 192;
/// Other sequences beside which the head is not expected to pay, before anything was measured.
const TOO_MANY_BESIDE: usize = 4;

/// Counts the rounds in which the exit head did not pay.
#[derive(Debug, Default)]
pub(crate) struct ExitHeadUse {
    unprofitable: usize, // rounds in a row, times the sequences in a step
}

impl ExitHeadUse {
    /// Records one round in a batch of `batch` sequences; `pays`: the head is expected to pay in
    /// it.
    pub(crate) fn record(&mut self, pays: bool, batch: usize) {
        self.unprofitable = if !pays && batch > 1 { self.unprofitable + batch } else { 0 };
    }

    /// Whether the head has not paid for so long that the sequence gives it up.
    pub(crate) fn is_over(&self) -> bool {
        self.unprofitable >= MAX_UNPROFITABLE_ROUNDS
    }

    /// Whether the head is not expected to pay beside `beside` others, before anything was
    /// measured.
    pub(crate) fn is_hopeless_beside(beside: usize) -> bool {
        beside >= TOO_MANY_BESIDE
    }
}
