//! KV of finished requests, for requests with a common prefix.
//!
//! A finished sequence stays until others need its pages; the least recently used one goes first. A
//! request with a common prefix starts from a fork of it, which shares its pages. A row's bits
//! depend on the tokens alone, so its output is the same bit for bit.

use selfspec_model::{Backend, SeqId, TokenId};

/// Most sequences that are kept.
const MOST: usize = 64;
/// Fewest tokens that are worth a fork.
const FEWEST: usize = 16;

/// A finished sequence.
#[derive(Debug)]
struct CachedPrefix {
    seq: SeqId,
    tokens: Vec<TokenId>, // that the backend holds
    auxiliary: bool,      // whether K and V of the auxiliary layers are there too
    used: u64,
}

/// The finished sequences that are kept.
#[derive(Debug, Default)]
pub(crate) struct PrefixCache {
    on: bool,
    kept: Vec<CachedPrefix>,
    clock: u64,
}

impl PrefixCache {
    pub(crate) fn new(on: bool) -> Self {
        PrefixCache { on, ..PrefixCache::default() }
    }

    /// Takes over a sequence of which the backend holds `tokens`.
    pub(crate) fn keep(&mut self, backend: &mut dyn Backend, seq: SeqId, tokens: &[TokenId]) {
        let auxiliary = backend.has_auxiliary(seq).unwrap_or(false);
        let covered = |kept: &mut CachedPrefix| tokens.starts_with(&kept.tokens) && (auxiliary || !kept.auxiliary);
        let known = |kept: &CachedPrefix| kept.tokens.starts_with(tokens) && (kept.auxiliary || !auxiliary);
        if !self.on || tokens.len() < FEWEST || self.kept.iter().any(known) {
            backend.free(seq);
            return;
        }
        for shorter in self.kept.extract_if(.., covered) {
            backend.free(shorter.seq);
        }
        while self.kept.len() >= MOST {
            self.drop_oldest(backend);
        }
        self.clock += 1;
        self.kept.push(CachedPrefix { seq, tokens: tokens.to_vec(), auxiliary, used: self.clock });
    }

    /// A fork of the kept sequence with the longest common prefix with `tokens`, the last token
    /// left out, and the prefix's length. `auxiliary`: K and V of the auxiliary layers must be
    /// there.
    pub(crate) fn fork(
        &mut self,
        backend: &mut dyn Backend,
        tokens: &[TokenId],
        auxiliary: bool,
    ) -> Option<(SeqId, usize)> {
        let most = tokens.len().checked_sub(1)?;
        let shared = |kept: &CachedPrefix| kept.tokens.iter().zip(&tokens[..most]).take_while(|(a, b)| a == b).count();
        let fit = self.kept.iter_mut().filter(|kept| kept.auxiliary || !auxiliary);
        let (len, best) = fit.map(|kept| (shared(kept), kept)).max_by_key(|(len, _)| *len)?;
        if len < FEWEST {
            return None;
        }
        self.clock += 1;
        best.used = self.clock;
        // The fork may fail for want of a page for the copy of the last one.
        backend.fork(best.seq, len).ok().map(|seq| (seq, len))
    }

    /// Frees sequences until the others hold at most `pages` pages. Shared pages count once for
    /// each of them.
    pub(crate) fn shrink(&mut self, backend: &mut dyn Backend, pages: usize) {
        let positions = backend.page_positions();
        let held = |kept: &[CachedPrefix]| kept.iter().map(|kept| kept.tokens.len().div_ceil(positions)).sum::<usize>();
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
    use selfspec_testkit::fake_target::{FakeOptions, FakeTarget, fake_target};

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
        };
        let rows: Vec<Row> = tokens.iter().enumerate().map(row).collect();
        target.step(&rows, &mut StepOutput::default()).expect("sound rows");
        target.set_len(seq, tokens.len()).expect("computed");
        seq
    }

    #[test]
    fn the_longest_common_beginning_is_shared_and_the_oldest_goes_first() {
        let mut target = fake_target(FakeOptions::default());
        let mut cache = PrefixCache::new(true);
        let text = |n: usize, last: TokenId| (0..n as u32).map(|i| i % 7).chain([last]).collect::<Vec<TokenId>>();
        for tokens in [text(20, 30), text(40, 31), text(60, 32)] {
            let seq = held(&mut target, &tokens);
            cache.keep(&mut target, seq, &tokens);
        }
        let (seq, len) = cache.fork(&mut target, &text(40, 33), false).expect("shared");
        assert_eq!((len, target.kv_len(seq).expect("live")), (40, 40), "all but the last");
        target.free(seq);
        assert!(cache.fork(&mut target, &text(40, 33), true).is_none(), "the exit head's K and V are not there");
        assert!(cache.fork(&mut target, &text(10, 33), false).is_none(), "too short to be worth it");
        let longer = text(60, 32).into_iter().chain([1, 2]).collect::<Vec<_>>();
        let seq = held(&mut target, &longer);
        cache.keep(&mut target, seq, &longer);
        assert_eq!(cache.kept.len(), 3, "what it begins with is not kept twice");
        let seq = held(&mut target, &text(20, 30));
        cache.keep(&mut target, seq, &text(20, 30));
        assert_eq!(cache.kept.len(), 3, "nor what is known");
        cache.shrink(&mut target, 6);
        assert_eq!(cache.kept.iter().map(|k| k.tokens.len()).max(), Some(63), "the latest stays");
        cache.shrink(&mut target, 0);
        assert_eq!(target.free_pages(), target.total_pages());
    }

    #[test]
    fn a_sequence_without_the_auxiliary_layers_serves_only_those_that_do_without() {
        let mut target = fake_target(FakeOptions { exit_head: Some((2, vec![1, 2])), ..FakeOptions::default() });
        let mut cache = PrefixCache::new(true);
        let text: Vec<TokenId> = (0..30).collect();
        let without = held(&mut target, &text);
        target.drop_auxiliary(without).expect("live");
        cache.keep(&mut target, without, &text);
        assert!(cache.fork(&mut target, &text, true).is_none(), "the exit head's K and V are not there");
        let (fork, _) = cache.fork(&mut target, &text, false).expect("shared");
        assert_eq!(target.has_auxiliary(fork), Ok(false));
        let with = held(&mut target, &text);
        cache.keep(&mut target, with, &text);
        assert_eq!(cache.kept.len(), 1, "it takes the other's place");
        let (fork, _) = cache.fork(&mut target, &text, true).expect("shared");
        assert_eq!(target.has_auxiliary(fork), Ok(true));
    }

    #[test]
    fn nothing_is_kept_while_it_is_off() {
        let mut target = fake_target(FakeOptions::default());
        let mut cache = PrefixCache::new(false);
        let seq = held(&mut target, &[1; 32]);
        cache.keep(&mut target, seq, &[1; 32]);
        assert!(cache.fork(&mut target, &[1; 40], false).is_none());
        assert_eq!(target.free_pages(), target.total_pages());
    }
}
