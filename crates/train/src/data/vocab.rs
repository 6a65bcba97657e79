//! The choice of a draft vocabulary: the most frequent tokens of the answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use selfspec_model::TokenId;

use crate::data::corpus::Corpus;

/// The `size` most frequent tokens of the corpus's answers and `always`, ascending; fewer if the
/// answers have fewer. Of equally frequent tokens the lower id comes first.
pub fn frequent_tokens(corpus: &Corpus, size: usize, always: &[TokenId]) -> Vec<TokenId> {
    let mut counts: HashMap<TokenId, u64> = HashMap::new();
    corpus.texts.iter().flat_map(|text| text.answer()).for_each(|token| *counts.entry(*token).or_default() += 1);
    let mut order: Vec<_> = counts.into_iter().collect();
    order.sort_unstable_by_key(|(token, count)| (std::cmp::Reverse(*count), *token));
    let mut chosen: BTreeSet<TokenId> = always.iter().copied().take(size).collect();
    for (token, _) in order {
        if chosen.len() >= size {
            break;
        }
        chosen.insert(token);
    }
    chosen.into_iter().collect()
}

/// By domain, the share of the answers' tokens that is in `ids`, which ascends. Domains without
/// answers are omitted.
pub fn coverage(corpus: &Corpus, ids: &[TokenId]) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for text in &corpus.texts {
        let (inside, all) = counts.entry(&text.domain).or_default();
        *all += text.answer().len() as u64;
        *inside += text.answer().iter().filter(|token| ids.binary_search(token).is_ok()).count() as u64;
    }
    let share = |(domain, (inside, all)): (&str, (u64, u64))| (domain.to_owned(), inside as f64 / all as f64);
    counts.into_iter().filter(|(_, (_, all))| *all > 0).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::corpus::TrainingText;

    fn corpus(answers: &[(&str, &[TokenId])]) -> Corpus {
        let text = |(domain, answer): &(&str, &[TokenId])| {
            let tokens = [9, 9].into_iter().chain(answer.iter().copied()).collect();
            TrainingText { domain: (*domain).to_owned(), prompt_len: 2, tokens }
        };
        Corpus { texts: answers.iter().map(text).collect() }
    }

    #[test]
    fn the_most_frequent_tokens_of_answers_are_chosen_and_end_tokens_always() {
        let corpus = corpus(&[("a", &[5, 5, 5, 1, 1, 7]), ("b", &[1, 3, 2, 2, 5]), ("c", &[])]);
        assert_eq!(frequent_tokens(&corpus, 2, &[]), [1, 5]);
        assert_eq!(frequent_tokens(&corpus, 4, &[6]), [1, 2, 5, 6]);
        assert_eq!(frequent_tokens(&corpus, 5, &[]), [1, 2, 3, 5, 7], "of 3 and 7 the lower came first");
        assert_eq!(frequent_tokens(&corpus, 100, &[9]), [1, 2, 3, 5, 7, 9]);
        assert_eq!(frequent_tokens(&corpus, 1, &[8, 6]).len(), 1);
        assert!(frequent_tokens(&corpus, 0, &[8]).is_empty());
        let shares = coverage(&corpus, &[1, 5]);
        assert_eq!(shares, BTreeMap::from([("a".to_owned(), 5.0 / 6.0), ("b".to_owned(), 2.0 / 5.0)]));
    }
}
