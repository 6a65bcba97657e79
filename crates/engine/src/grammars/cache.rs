//! Results of compilations, kept for requests with an equal grammar.

use std::collections::VecDeque;
use std::sync::Arc;

use selfspec_text::Grammar;

/// What became of a source: a grammar, or why it is none.
pub(crate) type Compiled = Result<Grammar, String>;

/// Results by source; of too many, the least recently used goes first.
#[derive(Debug)]
pub(crate) struct GrammarCache {
    entries: VecDeque<(Arc<str>, Compiled)>, // the most recently used last
    bytes: usize,
    most_entries: usize,
    most_bytes: usize,
}

impl GrammarCache {
    pub(crate) fn new(most_entries: usize, most_bytes: usize) -> Self {
        GrammarCache { entries: VecDeque::new(), bytes: 0, most_entries, most_bytes }
    }

    /// The result for the source with this key.
    pub(crate) fn get(&mut self, key: &str) -> Option<Compiled> {
        let at = self.entries.iter().position(|(known, _)| &**known == key)?;
        let entry = self.entries.remove(at)?;
        let result = entry.1.clone();
        self.entries.push_back(entry);
        Some(result)
    }

    /// Keeps a result. A single result that is too large is not kept.
    pub(crate) fn insert(&mut self, key: Arc<str>, result: Compiled) {
        let bytes = bytes(&key, &result);
        if bytes > self.most_bytes || self.entries.iter().any(|(known, _)| *known == key) {
            return;
        }
        self.bytes += bytes;
        self.entries.push_back((key, result));
        while self.entries.len() > self.most_entries || self.bytes > self.most_bytes {
            let Some((key, result)) = self.entries.pop_front() else { return };
            self.bytes -= self::bytes(&key, &result);
        }
    }
}

/// Estimate of the memory of an entry.
fn bytes(key: &str, result: &Compiled) -> usize {
    key.len() + result.as_ref().map_or_else(String::len, Grammar::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_bytes_are_bounded() {
        let mut cache = GrammarCache::new(3, 100);
        let refusal = |n: usize| Err("x".repeat(n));
        for key in ["a", "b", "c"] {
            cache.insert(key.into(), refusal(10));
        }
        assert!(cache.get("a").is_some());
        cache.insert("d".into(), refusal(10));
        assert!(cache.get("b").is_none() && cache.get("a").is_some(), "three are kept");
        cache.insert("large".into(), refusal(80));
        assert!(cache.get("large").is_some() && cache.get("c").is_none() && cache.bytes <= 100, "{cache:?}");
        cache.insert("too large".into(), refusal(100));
        assert!(cache.get("too large").is_none() && cache.get("large").is_some());
        cache.insert("large".into(), refusal(80));
        assert_eq!(cache.bytes, cache.entries.iter().map(|(key, result)| bytes(key, result)).sum::<usize>());
    }
}
