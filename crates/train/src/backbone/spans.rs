//! [`TokenSpans`]: the tokens of a training, cut into independent spans.

use selfspec_model::TokenId;

use crate::error::TrainError;
use crate::math::random::Random;

/// Shortest span with a token to predict.
const SHORTEST: usize = 2;

/// Training spans and held-out spans of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSpans {
    /// Training spans. Shape: (span, token).
    pub train: Vec<Vec<TokenId>>,
    /// Held-out spans. Shape: (span, token).
    pub held_out: Vec<Vec<TokenId>>,
}

impl TokenSpans {
    /// Cuts documents, one after the other, into spans of `len` tokens, of which the last may be
    /// shorter. The seed chooses `held_out` of them to hold out, at most a tenth but at least one.
    ///
    /// # Errors
    /// [`TrainError::NoSpan`] if the documents have fewer than two spans of two tokens.
    pub fn cut(documents: &[Vec<TokenId>], len: usize, held_out: usize, seed: u64) -> Result<TokenSpans, TrainError> {
        let mut train = spans(documents, len);
        let tokens = documents.iter().map(Vec::len).sum();
        if train.len() < 2 {
            return Err(TrainError::NoSpan { tokens, len });
        }
        let mut order: Vec<usize> = (0..train.len()).collect();
        Random::new(seed, "held out").shuffle(&mut order);
        order.truncate(held_out.min(train.len() / 10).max(1));
        order.sort_unstable();
        let mut judged: Vec<Vec<TokenId>> = order.iter().rev().map(|i| train.remove(*i)).collect();
        judged.reverse();
        Ok(TokenSpans { train, held_out: judged })
    }

    /// Training spans and held-out spans of separate documents.
    ///
    /// # Errors
    /// [`TrainError::NoSpan`] if either has no span of two tokens.
    pub fn apart(train: &[Vec<TokenId>], judged: &[Vec<TokenId>], len: usize) -> Result<TokenSpans, TrainError> {
        let of = |documents: &[Vec<TokenId>]| match spans(documents, len) {
            spans if spans.is_empty() => Err(TrainError::NoSpan { tokens: documents.iter().map(Vec::len).sum(), len }),
            spans => Ok(spans),
        };
        Ok(TokenSpans { train: of(train)?, held_out: of(judged)? })
    }

    /// Number of training tokens.
    pub fn tokens(&self) -> u64 {
        self.train.iter().map(|span| span.len() as u64).sum()
    }

    /// Length of the longest span.
    pub(crate) fn longest(&self) -> usize {
        self.train.iter().chain(&self.held_out).map(Vec::len).max().unwrap_or(0)
    }

    /// # Errors
    /// A span has a token that a vocabulary of `vocab` lacks.
    pub(crate) fn check(&self, vocab: usize) -> Result<(), TrainError> {
        for (text, span) in self.train.iter().chain(&self.held_out).enumerate() {
            if let Some(token) = span.iter().find(|token| **token as usize >= vocab) {
                return Err(TrainError::UnknownToken { text, token: *token, vocab });
            }
        }
        Ok(())
    }

    /// A hash of the contents.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut eat = |x: u64| hash = (hash ^ x).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        for spans in [&self.train, &self.held_out] {
            eat(spans.len() as u64);
            for span in spans {
                eat(span.len() as u64);
                span.iter().for_each(|token| eat(u64::from(*token)));
            }
        }
        format!("{hash:016x}")
    }
}

fn spans(documents: &[Vec<TokenId>], len: usize) -> Vec<Vec<TokenId>> {
    let all: Vec<TokenId> = documents.iter().flatten().copied().collect();
    all.chunks(len.max(SHORTEST)).filter(|span| span.len() >= SHORTEST).map(<[TokenId]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_in_one_span_and_the_seed_says_which_are_held_out() {
        let documents: Vec<Vec<TokenId>> = (0..10).map(|d| (0..21).map(|t| d * 21 + t).collect()).collect();
        let spans = TokenSpans::cut(&documents, 7, 2, 3).expect("enough");
        assert_eq!((spans.train.len(), spans.held_out.len(), spans.tokens(), spans.longest()), (28, 2, 196, 7));
        let mut all: Vec<TokenId> = spans.train.iter().chain(&spans.held_out).flatten().copied().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..210));
        assert_eq!(TokenSpans::cut(&documents, 7, 2, 3).expect("enough"), spans);
        assert_ne!(TokenSpans::cut(&documents, 7, 2, 4).expect("enough").held_out, spans.held_out);
        assert_eq!(TokenSpans::cut(&documents, 7, 100, 3).expect("enough").held_out.len(), 3, "at most a tenth");
        assert_ne!(TokenSpans::cut(&documents, 7, 2, 4).expect("enough").fingerprint(), spans.fingerprint());
    }

    #[test]
    fn too_few_tokens_are_said_to_be_too_few() {
        let why = |documents: &[Vec<TokenId>]| TokenSpans::cut(documents, 8, 2, 1).expect_err("too few").to_string();
        assert!(why(&[]).starts_with("nothing to train on: the texts have 0 tokens"));
        assert!(why(&[vec![5]]).starts_with("nothing to train on: the texts have 1 tokens"));
        assert!(why(&[vec![5; 9]]).starts_with("nothing to train on: the texts have 9 tokens"), "one span of eight");
        assert_eq!(TokenSpans::cut(&[vec![5; 10]], 8, 2, 1).expect("two spans").held_out.len(), 1);
        assert!(
            TokenSpans::apart(&[vec![1, 2]], &[vec![1]], 8).is_err()
                && TokenSpans::apart(&[], &[vec![1, 2]], 8).is_err()
        );
        let spans = TokenSpans::apart(&[vec![1, 2]], &[vec![3, 4]], 8).expect("two spans");
        assert!(spans.check(5).is_ok());
        assert_eq!(spans.check(4).expect_err("no 4").to_string(), "text 1: token 4 is not in a vocabulary of 4");
    }
}
