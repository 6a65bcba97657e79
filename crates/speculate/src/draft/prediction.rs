//! Drafting from an output that the request predicts: a text that is to be changed in a few places comes back mostly as it was.

use std::collections::HashMap;

use selfspec_model::TokenId;

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterKind;
use crate::sample::sampler::Draft;

/// Longest suffix of the output that is compared: enough to tell one place of the prediction from another.
const LONGEST: usize = 32;
/// Kind of the longest matches, and of the beginning.
const SURE: usize = 8;
/// Most places that are compared; a token that is more frequent tells little.
const MOST_PLACES: usize = 256;

/// Proposes what follows the output's last tokens in the prediction; at the beginning the prediction's first tokens.
///
/// Where it stands is found anew each time, from the committed tokens alone, so that nothing can go stale: of all places of the output's last
/// token the one with the longest common text before it, and of these the first after as many tokens as the output has.
#[derive(Debug)]
pub(crate) struct PredictionDrafter {
    tokens: Vec<TokenId>,
    places: HashMap<TokenId, Vec<u32>>, // of each token, where its followers stand
    prompt_len: usize,
    found: Option<usize>, // where the latest match continues
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

    /// Where the prediction goes on after `output`, and how long the match is.
    fn find(&self, output: &[TokenId]) -> Option<(usize, usize)> {
        let Some(last) = output.last() else { return (!self.tokens.is_empty()).then_some((0, LONGEST)) };
        let places = self.places.get(last)?;
        // Around as many tokens as there are in the output, since most of it is as predicted.
        let near = places.partition_point(|next| (*next as usize) < output.len());
        let from = near.saturating_sub(MOST_PLACES / 2);
        let common = |next: usize| {
            let pairs = output.iter().rev().zip(self.tokens[..next].iter().rev());
            pairs.take(LONGEST).take_while(|(a, b)| a == b).count()
        };
        let candidates = places[from..].iter().take(MOST_PLACES).map(|next| *next as usize);
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
        found.map(|(_, len)| len.min(SURE))
    }

    fn copy(&mut self, _: &[TokenId], k: usize, drafts: &mut Vec<Draft>) {
        let Some(at) = self.found.take() else { return };
        drafts.extend(self.tokens[at..].iter().take(k).map(|token| Draft::point(*token)));
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
    fn it_begins_at_the_beginning_and_goes_on_after_a_change() {
        let text = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(propose(&text, &[], 3), Some((SURE, vec![1, 2, 3])));
        assert_eq!(propose(&text, &[1, 2], 2), Some((2, vec![3, 4])));
        assert_eq!(propose(&text, &[1, 2, 9], 2), None, "nothing is known of what is new");
        assert_eq!(propose(&text, &[1, 2, 9, 4], 9), Some((1, vec![5, 6, 7])), "and at the end it stops");
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
