//! Prompt lookup: copies the tokens that followed the same last tokens earlier in the prompt or the
//! output. (Saxena 2023.)

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterKind;
use crate::sample::sampler::DraftToken;

/// An index of all n-grams of the committed tokens, n from `min` to `max`: the most recent position
/// of each.
///
/// It depends on the tokens alone and only grows with them, so that it cannot go stale. A token
/// costs `max - min + 1` insertions, a search at most as many look-ups.
#[derive(Debug)]
pub(crate) struct PromptLookup {
    min: usize,
    max: usize,
    /// Hash of an n-gram -> position of the token after its most recent occurrence. Different
    /// n-grams may share a hash, so that the tokens are compared before a match counts.
    next: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    /// Tokens that are in the index: `next` has positions below this.
    indexed: usize,
    found: Option<usize>, // position where the latest match continues
}

/// A hasher for keys that are hashes.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The hash of an n-gram made one token longer to the left.
fn extend(hash: u64, token: TokenId) -> u64 {
    let z = (hash ^ (u64::from(token) + 1)).wrapping_mul(0x9fb2_1c65_1e98_df25);
    z ^ (z >> 29)
}

impl PromptLookup {
    /// An empty index of n-grams from `min` to `max` tokens.
    pub(crate) fn new(min: usize, max: usize) -> Self {
        PromptLookup { min: min.max(1), max, next: HashMap::default(), indexed: 0, found: None }
    }

    /// Adds the new ones of `tokens` to the index.
    fn index(&mut self, tokens: &[TokenId]) {
        for at in self.indexed.max(1)..tokens.len() {
            let mut hash = 0;
            for n in 1..=self.max.min(at) {
                hash = extend(hash, tokens[at - n]);
                if n >= self.min {
                    self.next.insert(hash, at as u32);
                }
            }
        }
        self.indexed = self.indexed.max(tokens.len());
    }

    /// The longest suffix of `tokens` that occurred before: its length, and the position where its
    /// most recent occurrence continues.
    fn find(&mut self, tokens: &[TokenId]) -> Option<(usize, usize)> {
        self.index(tokens);
        let longest = self.max.min(tokens.len());
        let mut hashes = [0u64; 9];
        for n in 1..=longest {
            hashes[n] = extend(hashes[n - 1], tokens[tokens.len() - n]);
        }
        (self.min..=longest).rev().find_map(|n| {
            let at = *self.next.get(&hashes[n])? as usize;
            let same = at >= n && tokens[at - n..at] == tokens[tokens.len() - n..];
            same.then_some((n, at))
        })
    }
}

impl Drafter for PromptLookup {
    fn kind(&self) -> DrafterKind {
        DrafterKind::PromptLookup
    }

    fn offer(&mut self, tokens: &[TokenId], _: &[TokenId]) -> Option<usize> {
        let found = self.find(tokens);
        self.found = found.map(|(_, at)| at);
        found.map(|(n, _)| n)
    }

    fn copy(&mut self, tokens: &[TokenId], k: usize, drafts: &mut Vec<DraftToken>) {
        let Some(at) = self.found.take() else { return };
        for i in at..at + k {
            // A match that reaches the end of the tokens goes on with its own copies: a loop stays
            // a loop.
            let token = tokens.get(i).copied().unwrap_or_else(|| drafts[i - tokens.len()].token);
            drafts.push(DraftToken::point(token));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn propose(lookup: &mut PromptLookup, tokens: &[TokenId], k: usize) -> Option<(usize, Vec<TokenId>)> {
        let n = lookup.offer(tokens, &[])?;
        let mut drafts = Vec::new();
        lookup.copy(tokens, k, &mut drafts);
        Some((n, drafts.iter().map(|d| d.token).collect()))
    }

    /// The definition: scan for the longest suffix, most recent first.
    fn by_scan(tokens: &[TokenId], min: usize, max: usize, k: usize) -> Option<(usize, Vec<TokenId>)> {
        for n in (min..=max.min(tokens.len())).rev() {
            let suffix = &tokens[tokens.len() - n..];
            for at in (n..tokens.len()).rev() {
                if &tokens[at - n..at] == suffix {
                    let mut all = tokens.to_vec();
                    for i in at..at + k {
                        all.push(all[i]);
                    }
                    return Some((n, all[tokens.len()..].to_vec()));
                }
            }
        }
        None
    }

    #[test]
    fn the_longest_suffix_wins_over_a_more_recent_shorter_one() {
        let tokens = [1, 2, 3, 9, 9, 7, 3, 4, 1, 2, 3];
        assert_eq!(propose(&mut PromptLookup::new(1, 4), &tokens, 2), Some((3, vec![9, 9])));
        assert_eq!(propose(&mut PromptLookup::new(1, 1), &tokens, 2), Some((1, vec![4, 1])));
        assert_eq!(propose(&mut PromptLookup::new(4, 4), &tokens, 2), None);
        assert_eq!(propose(&mut PromptLookup::new(1, 4), &[5], 2), None);
    }

    #[test]
    fn a_loop_is_continued_as_a_loop() {
        assert_eq!(propose(&mut PromptLookup::new(1, 4), &[8, 1, 2, 1, 2], 5), Some((2, vec![1, 2, 1, 2, 1])));
        assert_eq!(propose(&mut PromptLookup::new(1, 4), &[6, 6], 3), Some((1, vec![6, 6, 6])));
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_finds(
            tokens in prop::collection::vec(0u32..5, 1..120),
            min in 1usize..4, more in 0usize..4, k in 1usize..9, cuts in prop::collection::vec(1usize..120, 0..5),
        ) {
            let mut lookup = PromptLookup::new(min, min + more);
            // Earlier calls with fewer tokens change nothing: the index only depends on the tokens.
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c <= tokens.len()).collect();
            cuts.sort_unstable();
            for cut in cuts {
                prop_assert_eq!(propose(&mut lookup, &tokens[..cut], k), by_scan(&tokens[..cut], min, min + more, k));
            }
            prop_assert_eq!(propose(&mut lookup, &tokens, k), by_scan(&tokens, min, min + more, k));
        }
    }
}
