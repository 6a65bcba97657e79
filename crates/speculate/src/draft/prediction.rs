//! Drafting from an output that the request predicts. A text that is edited in a few places comes
//! back mostly unchanged.

use std::collections::HashMap;

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterKind;
use crate::sample::sampler::DraftToken;

/// Longest suffix of the output that is compared, in tokens: enough to tell the places of the
/// prediction apart.
const LONGEST_SUFFIX: usize = 32;
/// The kind of offer of the longest matches, and of the beginning.
const LONGEST_OFFER: usize = 8;
/// Most places that are compared. A more frequent token tells little.
const MAX_PLACES: usize = 256;

/// Copies what follows the output's last tokens in the prediction, or its first tokens at the
/// beginning.
///
/// The place is found anew each time from the committed tokens alone, so that nothing can go stale.
/// Of all places of the output's last token it is the one with the longest common text before it.
/// Among equals it is the one nearest to the output's own length.
#[derive(Debug)]
pub(crate) struct PredictionDrafter {
    tokens: Vec<TokenId>,
    places: HashMap<TokenId, Vec<u32>>, // by token: the positions after its occurrences, ascending
    prompt_len: usize,
    found: Option<usize>, // position where the latest match continues
}

impl PredictionDrafter {
    /// A prediction of what follows a prompt of `prompt_len` tokens.
    pub(crate) fn new(tokens: Vec<TokenId>, prompt_len: usize) -> Self {
        let mut places: HashMap<TokenId, Vec<u32>> = HashMap::new();
        for (token, next) in tokens.iter().zip(1..) {
            places.entry(*token).or_default().push(next);
        }
        PredictionDrafter { tokens, places, prompt_len, found: None }
    }

    /// The position where the prediction continues after `output`, and the length of the match in
    /// tokens.
    fn find(&self, output: &[TokenId]) -> Option<(usize, usize)> {
        let Some(last) = output.last() else { return (!self.tokens.is_empty()).then_some((0, LONGEST_SUFFIX)) };
        let places = self.places.get(last)?;
        // Around the output's own length, since most of it is as predicted.
        let near = places.partition_point(|next| (*next as usize) < output.len());
        let from = near.saturating_sub(MAX_PLACES / 2);
        let common = |next: usize| {
            let pairs = output.iter().rev().zip(self.tokens[..next].iter().rev());
            pairs.take(LONGEST_SUFFIX).take_while(|(a, b)| a == b).count()
        };
        let candidates = places[from..].iter().take(MAX_PLACES).map(|next| *next as usize);
        candidates
            .filter(|next| *next < self.tokens.len())
            .map(|next| (next, common(next)))
            .max_by_key(|(next, len)| (*len, std::cmp::Reverse(next.abs_diff(output.len()))))
    }
}

impl Drafter for PredictionDrafter {
    fn kind(&self) -> DrafterKind {
        DrafterKind::Prediction
    }

    fn offer(&mut self, tokens: &[TokenId], _: &[TokenId]) -> Option<usize> {
        let found = self.find(&tokens[self.prompt_len..]);
        self.found = found.map(|(next, _)| next);
        found.map(|(_, len)| len.min(LONGEST_OFFER))
    }

    fn copy(&mut self, _: &[TokenId], k: usize, drafts: &mut Vec<DraftToken>) {
        let Some(at) = self.found.take() else { return };
        drafts.extend(self.tokens[at..].iter().take(k).map(|token| DraftToken::point(*token)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn propose(prediction: &[TokenId], output: &[TokenId], k: usize) -> Option<(usize, Vec<TokenId>)> {
        let mut drafter = PredictionDrafter::new(prediction.to_vec(), 2);
        let tokens: Vec<TokenId> = [90, 91].iter().chain(output).copied().collect();
        let len = drafter.offer(&tokens, &[])?;
        let mut drafts = Vec::new();
        drafter.copy(&tokens, k, &mut drafts);
        Some((len, drafts.iter().map(|d| d.token).collect()))
    }

    #[test]
    fn it_starts_at_the_beginning_and_continues_after_a_change() {
        let text = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(propose(&text, &[], 3), Some((LONGEST_OFFER, vec![1, 2, 3])));
        assert_eq!(propose(&text, &[1, 2], 2), Some((2, vec![3, 4])));
        assert_eq!(propose(&text, &[1, 2, 9], 2), None, "the prediction lacks the new token");
        assert_eq!(propose(&text, &[1, 2, 9, 4], 9), Some((1, vec![5, 6, 7])), "it stops at the end");
        assert_eq!(propose(&text, &[7], 2), None);
        assert_eq!(propose(&[], &[], 2), None);
    }

    #[test]
    fn the_longest_match_wins_and_of_equals_the_nearest_place() {
        let text = [5, 1, 2, 3, 8, 1, 2, 4, 9, 2, 6];
        assert_eq!(propose(&text, &[8, 1, 2], 1), Some((3, vec![4])));
        assert_eq!(propose(&text, &[7, 7, 2], 1), Some((1, vec![3])));
        assert_eq!(propose(&text, &[7, 7, 7, 7, 7, 7, 7, 7, 7, 2], 1), Some((1, vec![6])));
    }
}
