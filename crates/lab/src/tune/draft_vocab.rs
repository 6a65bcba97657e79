//! The draft vocabulary: the tokens that the model says most often.

use std::collections::HashMap;

use selfspec_model::TokenId;

/// Default size of a draft vocabulary, in tokens.
const SIZE: usize = 8192;

/// The tokens of a draft vocabulary, ascending, and the share of answers that it can be expected to
/// cover: the vocabulary of half of the answers, tried on the other half. No tokens: no draft
/// vocabulary. Shape of `answers`: (prompt, token).
///
/// The lowest ids fill up a vocabulary that the answers leave too small: one made by merging has
/// its most frequent tokens first.
pub(super) fn count(answers: &[Vec<TokenId>], vocab: usize, size: Option<usize>) -> (Vec<TokenId>, f64) {
    let size = size.unwrap_or(SIZE.min(vocab / 4)).min(vocab);
    if size == 0 || size == vocab {
        return (Vec::new(), 1.0);
    }
    let half = |which: usize| answers.iter().enumerate().filter(move |(i, _)| i % 2 == which).map(|(_, answer)| answer);
    let seen = most_frequent(half(0), vocab, size);
    let unseen: Vec<TokenId> = half(1).flatten().copied().collect();
    let covered = unseen.iter().filter(|token| seen.binary_search(token).is_ok()).count();
    let coverage = if unseen.is_empty() { 0.0 } else { covered as f64 / unseen.len() as f64 };
    (most_frequent(answers.iter(), vocab, size), coverage)
}

fn most_frequent<'a>(answers: impl Iterator<Item = &'a Vec<TokenId>>, vocab: usize, size: usize) -> Vec<TokenId> {
    let mut counts: HashMap<TokenId, usize> = HashMap::new();
    for token in answers.flatten() {
        *counts.entry(*token).or_default() += 1;
    }
    let mut order: Vec<TokenId> = (0..vocab as TokenId).collect();
    order.sort_by_key(|token| (std::cmp::Reverse(counts.get(token).copied().unwrap_or(0)), *token));
    order.truncate(size);
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_tokens_come_first_and_low_ids_fill_up() {
        let answers = vec![vec![90, 91, 90], vec![90, 92], vec![91], vec![5]];
        let (ids, coverage) = count(&answers, 100, Some(5));
        assert_eq!(ids, [0, 5, 90, 91, 92]);
        // The first and third answer give 90, 91, 0, 1, 2; of 90, 92, 5 in the others they have
        // one.
        assert!((coverage - 1.0 / 3.0).abs() < 1e-9);
        assert!(count(&answers, 100, Some(0)).0.is_empty());
        assert!(count(&answers, 100, Some(1000)).0.is_empty());
        assert_eq!(count(&[], 100, None).0.len(), 25);
    }
}
