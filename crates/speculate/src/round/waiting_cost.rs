//! What a round's draft steps cost the sequences that wait for them.
//!
//! In a batch drafts run in steps of their own (see `lockstep.rs`), and sequences without drafts
//! wait meanwhile. The loss budget is charged for all of them.

/// Draft steps of a round, each counted once for every sequence that waited for it or drafted in
/// it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitingCost {
    pub(crate) steps: f64,
    counted: usize, // draft rows of the round that are in `steps`
}

impl WaitingCost {
    /// Adds the draft rows run since the last call, at `waiting` sequences for each that drafted.
    pub(crate) fn add(&mut self, draft_rows: usize, waiting: f64) {
        self.steps += (draft_rows - self.counted) as f64 * waiting;
        self.counted = draft_rows;
    }
}
