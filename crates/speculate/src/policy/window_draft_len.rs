//! The draft length by a sliding window over the latest verified drafts, like congestion control.

/// Verified drafts that the window remembers.
const WINDOW: u32 = 64;
/// Verified drafts in the window before it changes the length.
const FEWEST: u32 = 8;
/// Bounds of the draft length, and its first value, in tokens.
const LOWEST: usize = 2;
const HIGHEST: usize = 8;
const START: usize = 4;
/// Acceptance rates above which the length grows, and below which it shrinks.
const GROW_ABOVE: f64 = 0.85;
const SHRINK_BELOW: f64 = 0.7;

/// The last 64 verified drafts, and the draft length that follows from them: after each round one
/// more above an acceptance of 0.85, one fewer below 0.7, within 2 to 8.
///
/// Only verified drafts count. Drafts after a rejected one were never verified; as failures they
/// would make long drafts look bad because they are long.
#[derive(Debug, Clone)]
pub(crate) struct DraftLenWindow {
    accepted: u64, // a bit for each verified draft, the latest lowest
    judged: u32,
    draft_len: usize,
}

impl DraftLenWindow {
    pub(crate) fn new() -> Self {
        DraftLenWindow { accepted: 0, judged: 0, draft_len: START }
    }

    /// The draft length in tokens.
    pub(crate) fn draft_len(&self) -> usize {
        self.draft_len
    }

    /// Records a round: `accepted` drafts, then one rejected if `rejected`.
    pub(crate) fn record_round(&mut self, accepted: usize, rejected: bool) {
        if accepted == 0 && !rejected {
            return;
        }
        for bit in std::iter::repeat_n(1, accepted).chain(rejected.then_some(0)) {
            self.accepted = (self.accepted << 1) | bit;
            self.judged = (self.judged + 1).min(WINDOW);
        }
        if self.judged < FEWEST {
            return;
        }
        let mask = u64::MAX >> (WINDOW - self.judged);
        let acceptance = f64::from((self.accepted & mask).count_ones()) / f64::from(self.judged);
        if acceptance > GROW_ABOVE {
            self.draft_len = (self.draft_len + 1).min(HIGHEST);
        } else if acceptance < SHRINK_BELOW {
            self.draft_len = (self.draft_len - 1).max(LOWEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draft_length_follows_acceptance_within_its_bounds() {
        let mut window = DraftLenWindow::new();
        assert_eq!(window.draft_len(), 4);
        for _ in 0..20 {
            window.record_round(4, false);
        }
        assert_eq!(window.draft_len(), 8);
        window.record_round(0, true);
        assert_eq!(window.draft_len(), 8, "one refusal in 64 is nothing");
        for _ in 0..64 {
            window.record_round(0, true);
        }
        assert_eq!(window.draft_len(), 2);
        for _ in 0..16 {
            window.record_round(3, true); // 0.75: neither
        }
        assert_eq!(window.draft_len(), 2);
    }

    #[test]
    fn only_the_last_64_count() {
        let mut window = DraftLenWindow::new();
        for _ in 0..100 {
            window.record_round(0, true);
        }
        for _ in 0..8 {
            window.record_round(8, false);
        }
        assert_eq!((window.accepted, window.judged), (u64::MAX, 64));
    }
}
