//! KV of requests that are over, for those that begin with the same tokens.
//!
//! A sequence that has finished is kept as it is until its pages are wanted; the one that was used least recently goes first. A request whose prompt begins with its
//! tokens starts from a fork of it, which shares its pages. Since a row's bits depend on its tokens alone, what it gets is the same bit for bit.

use selfspec_model::{Backend, SeqId, TokenId};

/// Most sequences that are kept.
const MOST: usize = 64;
/// Fewest tokens that are worth a fork.
const FEWEST: usize = 16;

/// A sequence that is over.
#[derive(Debug)]
struct Kept {
    seq: SeqId,
    tokens: Vec<TokenId>, // that the backend holds
    exit_kv: bool,        // whether the exit head's K and V are there too
    used: u64,
}

/// Sequences that are over, and hold pages that nobody else wants.
#[derive(Debug, Default)]
pub(crate) struct PrefixCache {
    on: bool,
    kept: Vec<Kept>,
    clock: u64,
}

impl PrefixCache {
    pub(crate) fn new(on: bool) -> Self {
        PrefixCache { on, ..PrefixCache::default() }
    }

    /// Takes over a sequence of which the backend holds `tokens`.
    pub(crate) fn keep(&mut self, backend: &mut dyn Backend, seq: SeqId, tokens: &[TokenId], exit_kv: bool) {
        let covers =
            |longer: &[TokenId], kv: bool, kept: &Kept| longer.starts_with(&kept.tokens) && (kv || !kept.exit_kv);
        let known = |kept: &Kept| kept.tokens.starts_with(tokens) && (kept.exit_kv || !exit_kv);
        if !self.on || tokens.len() < FEWEST || self.kept.iter().any(known) {
            backend.free(seq);
            return;
        }
        for shorter in self.kept.extract_if(.., |kept| covers(tokens, exit_kv, kept)) {
            backend.free(shorter.seq);
        }
        while self.kept.len() >= MOST {
            self.drop_oldest(backend);
        }
        self.clock += 1;
        self.kept.push(Kept { seq, tokens: tokens.to_vec(), exit_kv, used: self.clock });
    }

    /// A sequence that holds as many of `tokens` as one that is kept has in common with them, but for the last; and how many. `exit_kv`: the exit head's K and V
    /// must be there.
    pub(crate) fn fork(
        &mut self,
        backend: &mut dyn Backend,
        tokens: &[TokenId],
        exit_kv: bool,
    ) -> Option<(SeqId, usize)> {
        let most = tokens.len().checked_sub(1)?;
        let shared = |kept: &Kept| kept.tokens.iter().zip(&tokens[..most]).take_while(|(a, b)| a == b).count();
        let fit = self.kept.iter_mut().filter(|kept| kept.exit_kv || !exit_kv);
        let (len, best) = fit.map(|kept| (shared(kept), kept)).max_by_key(|(len, _)| *len)?;
        if len < FEWEST {
            return None;
        }
        self.clock += 1;
        best.used = self.clock;
        // It may lack a page for the copy of the last one.
        backend.fork(best.seq, len).ok().map(|seq| (seq, len))
    }

    /// Lets sequences go until those left have at most `pages` of `page_positions`, those counted twice that they share.
    pub(crate) fn shrink(&mut self, backend: &mut dyn Backend, pages: usize) {
        let positions = backend.page_positions();
        let held = |kept: &[Kept]| kept.iter().map(|kept| kept.tokens.len().div_ceil(positions)).sum::<usize>();
        while !self.kept.is_empty() && held(&self.kept) > pages {
            self.drop_oldest(backend);
        }
    }

    fn drop_oldest(&mut self, backend: &mut dyn Backend) {
        if let Some(oldest) = (0..self.kept.len()).min_by_key(|i| self.kept[*i].used) {
            backend.free(self.kept.swap_remove(oldest).seq);
        }
    }

    /// Forgets them all: the backend that held them is gone.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use selfspec_testkit::fake_target::{FakeOptions, FakeTarget};

    use super::*;

    /// A sequence of which the target holds so many positions.
    fn held(target: &mut FakeTarget, tokens: &[TokenId]) -> SeqId {
        use selfspec_model::{Enter, LayerPlan, Readout, Row, StepOutput};
        let seq = target.create();
        let row = |(pos, token): (usize, &TokenId)| Row {
            seq,
            pos,
            token: *token,
            enter: Enter::Token,
            plan: LayerPlan::full(target.n_layers()),
            keep: false,
            readout: Readout::Nothing,
            exit_kv: false,
        };
        let rows: Vec<Row> = tokens.iter().enumerate().map(row).collect();
        target.step(&rows, &mut StepOutput::default()).expect("sound rows");
        target.set_len(seq, tokens.len()).expect("computed");
        seq
    }

    #[test]
    fn the_longest_common_beginning_is_shared_and_the_oldest_goes_first() {
        let mut target = FakeTarget::new(FakeOptions::default());
        let mut cache = PrefixCache::new(true);
        let text = |n: usize, last: TokenId| (0..n as u32).map(|i| i % 7).chain([last]).collect::<Vec<TokenId>>();
        for tokens in [text(20, 30), text(40, 31), text(60, 32)] {
            let seq = held(&mut target, &tokens);
            cache.keep(&mut target, seq, &tokens, false);
        }
        let (seq, len) = cache.fork(&mut target, &text(40, 33), false).expect("shared");
        assert_eq!((len, target.kv_len(seq).expect("live")), (40, 40), "all but the last");
        target.free(seq);
        assert!(cache.fork(&mut target, &text(40, 33), true).is_none(), "the exit head's K and V are not there");
        assert!(cache.fork(&mut target, &text(10, 33), false).is_none(), "too short to be worth it");
        let longer = text(60, 32).into_iter().chain([1, 2]).collect::<Vec<_>>();
        let seq = held(&mut target, &longer);
        cache.keep(&mut target, seq, &longer, false);
        assert_eq!(cache.kept.len(), 3, "what it begins with is not kept twice");
        let seq = held(&mut target, &text(20, 30));
        cache.keep(&mut target, seq, &text(20, 30), false);
        assert_eq!(cache.kept.len(), 3, "nor what is known");
        cache.shrink(&mut target, 6);
        assert_eq!(cache.kept.iter().map(|k| k.tokens.len()).max(), Some(63), "the latest stays");
        cache.shrink(&mut target, 0);
        assert_eq!(target.free_pages(), target.total_pages());
    }

    #[test]
    fn nothing_is_kept_while_it_is_off() {
        let mut target = FakeTarget::new(FakeOptions::default());
        let mut cache = PrefixCache::new(false);
        let seq = held(&mut target, &[1; 32]);
        cache.keep(&mut target, seq, &[1; 32], false);
        assert!(cache.fork(&mut target, &[1; 40], false).is_none());
        assert_eq!(target.free_pages(), target.total_pages());
    }
}
