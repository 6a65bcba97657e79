//! The adaptive draft length: like congestion control, by what became of the latest drafts.

/// Drafts that the window remembers.
const WINDOW: u32 = 64;
/// Drafts that must be in it before it moves.
const ENOUGH: u32 = 8;
const LOWEST: usize = 2;
const HIGHEST: usize = 8;
const START: usize = 4;

/// The last 64 judged drafts, and the draft length that they lead to: after each round one more above an acceptance of 0.85, one fewer
/// below 0.7, within 2 to 8.
///
/// Only judged drafts count. Those after a refused one were never looked at; counting them as failures would make long drafts look
/// bad because they are long.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    accepted: u64, // a bit for each judged draft, the latest lowest
    judged: u32,
    draft_len: usize,
}

impl Window {
    pub(crate) fn new() -> Self {
        Window { accepted: 0, judged: 0, draft_len: START }
    }

    pub(crate) fn draft_len(&self) -> usize {
        self.draft_len
    }

    /// Takes note of a round: `accepted` drafts, then one refused if `rejected`.
    pub(crate) fn add(&mut self, accepted: usize, rejected: bool) {
        if accepted == 0 && !rejected {
            return;
        }
        for bit in std::iter::repeat_n(1, accepted).chain(rejected.then_some(0)) {
            self.accepted = (self.accepted << 1) | bit;
            self.judged = (self.judged + 1).min(WINDOW);
        }
        if self.judged < ENOUGH {
            return;
        }
        let mask = u64::MAX >> (WINDOW - self.judged);
        let acceptance = f64::from((self.accepted & mask).count_ones()) / f64::from(self.judged);
        if acceptance > 0.85 {
            self.draft_len = (self.draft_len + 1).min(HIGHEST);
        } else if acceptance < 0.7 {
            self.draft_len = (self.draft_len - 1).max(LOWEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draft_length_follows_acceptance_within_its_bounds() {
        let mut window = Window::new();
        assert_eq!(window.draft_len(), 4);
        for _ in 0..20 {
            window.add(4, false);
        }
        assert_eq!(window.draft_len(), 8);
        window.add(0, true);
        assert_eq!(window.draft_len(), 8, "one refusal in 64 is nothing");
        for _ in 0..64 {
            window.add(0, true);
        }
        assert_eq!(window.draft_len(), 2);
        for _ in 0..16 {
            window.add(3, true); // 0.75: neither
        }
        assert_eq!(window.draft_len(), 2);
    }

    #[test]
    fn only_the_last_64_count() {
        let mut window = Window::new();
        for _ in 0..100 {
            window.add(0, true);
        }
        for _ in 0..8 {
            window.add(8, false);
        }
        assert_eq!((window.accepted, window.judged), (u64::MAX, 64));
    }
}
