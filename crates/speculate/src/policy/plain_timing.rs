//! Plain rounds that run only to be timed, so that prices stay current while a drafter works.

/// Plain rounds in a row that run only to be timed. In a batch other sequences may go on with
/// rounds that draft, and then no plain step is measured.
const TIMINGS_IN_A_ROW: usize = 4;
/// Generated tokens before there may be others.
const PAUSE: usize = 64;

/// Decides when a round is plain only to be timed.
#[derive(Debug, Default)]
pub(crate) struct PlainTiming {
    in_a_row: usize,
    next: usize, // generated tokens before there may be others
}

impl PlainTiming {
    /// Whether the next round is timed, where `due` says that a time is missing or old.
    pub(crate) fn is_next(&mut self, due: bool, generated: usize) -> bool {
        if !due || generated < self.next {
            self.in_a_row = 0;
            return false;
        }
        self.in_a_row += 1;
        if self.in_a_row == TIMINGS_IN_A_ROW {
            *self = PlainTiming { in_a_row: 0, next: generated + PAUSE };
        }
        true
    }
}
