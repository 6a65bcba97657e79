//! The distribution after a row's transforms, and exact draws from it and from residuals of two.

use selfspec_model::TokenId;

use crate::sample::softmax::{BLOCK, exponentials, sum_blocks};
use crate::sample::truncation::TokenCandidate;

/// Probabilities of tokens, as weights over their sum. Its memory is reused from row to row.
#[derive(Debug, Default, Clone)]
pub struct TokenDistribution {
    tokens: Option<Vec<TokenId>>, // ascending; None: all tokens, by id
    weights: Vec<f32>,
    blocks: Vec<f64>, // sums of BLOCK weights each
    total: f64,
}

impl TokenDistribution {
    /// Fills in every token of `row` at a temperature of `1 / scale`. Logit i is that of the i-th
    /// of `tokens`, which ascend, or of token i where that is `None`. Shape of `row`: (tokens).
    pub(crate) fn fill_all(&mut self, row: &[f32], tokens: Option<&[TokenId]>, peak: f32, scale: f32) {
        match tokens {
            None => self.tokens = None,
            Some(tokens) => tokens.clone_into(self.tokens.get_or_insert_default()),
        }
        self.total = exponentials(row, peak, scale, &mut self.weights, &mut self.blocks);
    }

    /// Fills in the tokens that truncation kept, in ascending order.
    pub(crate) fn fill(&mut self, kept: &[TokenCandidate]) {
        let tokens = self.tokens.get_or_insert_default();
        tokens.clear();
        tokens.extend(kept.iter().map(|c| c.token));
        self.weights.clear();
        self.weights.extend(kept.iter().map(|c| c.weight));
        self.total = sum_blocks(&self.weights, &mut self.blocks);
    }

    fn token(&self, i: usize) -> TokenId {
        self.tokens.as_ref().map_or(i as TokenId, |tokens| tokens[i])
    }

    /// Probability of `token`.
    pub fn probability(&self, token: TokenId) -> f64 {
        let i = match &self.tokens {
            None => Some(token as usize),
            Some(tokens) => tokens.binary_search(&token).ok(),
        };
        i.and_then(|i| self.weights.get(i)).map_or(0.0, |w| f64::from(*w) / self.total)
    }

    /// The token at `u`, uniform in [0, 1), of the cumulative distribution.
    pub(crate) fn draw(&self, u: f64) -> TokenId {
        let mut left = u * self.total;
        let mut block = 0;
        while block + 1 < self.blocks.len() && left >= self.blocks[block] {
            left -= self.blocks[block];
            block += 1;
        }
        // Rounding may lead to the end of the block, or into one without mass: then the nearest
        // possible token before it is drawn.
        let start = block * BLOCK;
        let end = (start + BLOCK).min(self.weights.len());
        for i in start..end {
            let w = f64::from(self.weights[i]);
            if left < w {
                return self.token(i);
            }
            left -= w;
        }
        let last = self.weights[..end].iter().rposition(|w| *w > 0.0);
        let last = last.or_else(|| self.weights.iter().position(|w| *w > 0.0));
        self.token(last.expect("the most probable token has weight 1"))
    }

    /// The token at `u` of `max(0, self - q)`, renormalised; `None` where that is zero everywhere.
    ///
    /// `q` of `None` is the point mass on `drafted`.
    pub(crate) fn draw_residual(
        &self,
        q: Option<&TokenDistribution>,
        drafted: TokenId,
        u: f64,
        scratch: &mut Vec<f64>,
    ) -> Option<TokenId> {
        scratch.clear();
        let p = |i: usize| f64::from(self.weights[i]) / self.total;
        match q {
            None => scratch.extend((0..self.weights.len()).map(|i| if self.token(i) == drafted { 0.0 } else { p(i) })),
            Some(q) => {
                let mut at = 0; // q's tokens before it are below the token at hand
                scratch.extend((0..self.weights.len()).map(|i| {
                    let token = self.token(i);
                    while at < q.weights.len() && q.token(at) < token {
                        at += 1;
                    }
                    let there = at < q.weights.len() && q.token(at) == token;
                    let q = if there { f64::from(q.weights[at]) / q.total } else { 0.0 };
                    (p(i) - q).max(0.0)
                }));
            }
        }
        let total: f64 = scratch.iter().sum();
        if total <= 0.0 {
            return None;
        }
        let mut left = u * total;
        for (i, r) in scratch.iter().enumerate() {
            if left < *r {
                return Some(self.token(i));
            }
            left -= r;
        }
        scratch.iter().rposition(|r| *r > 0.0).map(|i| self.token(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(weights: &[f32]) -> TokenDistribution {
        let row: Vec<f32> = weights.iter().map(|w| w.ln()).collect();
        let mut d = TokenDistribution::default();
        d.fill_all(&row, None, 0.0, 1.0);
        d
    }

    fn sparse(pairs: &[(TokenId, f32)]) -> TokenDistribution {
        let kept: Vec<TokenCandidate> = pairs
            .iter()
            .map(|(token, weight)| TokenCandidate { token: *token, logit: 0.0, score: 0.0, weight: *weight })
            .collect();
        let mut d = TokenDistribution::default();
        d.fill(&kept);
        d
    }

    #[test]
    fn draws_cover_each_token_by_its_share() {
        let mut weights = vec![0.25f32; 200];
        weights[3] = 1.0;
        weights[130] = 0.0;
        let d = dense(&weights);
        let n = 50_000;
        let mut counts = vec![0u32; 200];
        for i in 0..n {
            counts[d.draw((i as f64 + 0.5) / n as f64) as usize] += 1;
        }
        for (token, count) in counts.iter().enumerate() {
            let expected = d.probability(token as TokenId) * n as f64;
            assert!((f64::from(*count) - expected).abs() <= 2.0, "token {token}: {count}, expected {expected}");
        }
        assert_eq!(counts[130], 0);
    }

    #[test]
    fn a_draw_at_the_very_end_is_a_possible_token() {
        let d = dense(&[1.0, 0.5, 0.0, 0.0]);
        assert_eq!(d.draw(1.0 - f64::EPSILON / 2.0), 1);
        let zeros_first = dense(&[0.0, 0.0, 1.0]);
        assert_eq!(zeros_first.draw(0.0), 2);
    }

    #[test]
    fn the_residual_is_what_p_has_more_than_q() {
        let p = sparse(&[(2, 0.5), (5, 1.0), (9, 0.5)]); // 1/4, 1/2, 1/4
        let q = sparse(&[(0, 1.0), (5, 1.0), (9, 0.5)]); // 2/5, 2/5, 1/5
        let mut scratch = Vec::new();
        // Residual: 0.25, 0.1, 0.05 of 0.4.
        let at = |u, scratch: &mut Vec<f64>| p.draw_residual(Some(&q), 0, u, scratch);
        assert_eq!(at(0.0, &mut scratch), Some(2));
        assert_eq!(at(0.62, &mut scratch), Some(2));
        assert_eq!(at(0.63, &mut scratch), Some(5));
        assert_eq!(at(0.87, &mut scratch), Some(5));
        assert_eq!(at(0.88, &mut scratch), Some(9));
        assert_eq!(p.draw_residual(Some(&p.clone()), 5, 0.5, &mut scratch), None, "p = q leaves nothing");
        assert_eq!(p.draw_residual(None, 5, 0.49, &mut scratch), Some(2));
        assert_eq!(p.draw_residual(None, 5, 0.51, &mut scratch), Some(9));
        let point = sparse(&[(5, 1.0)]);
        assert_eq!(point.draw_residual(None, 5, 0.5, &mut scratch), None);
    }

    #[test]
    fn dense_and_sparse_meet_in_a_residual() {
        let p = dense(&[1.0, 1.0, 1.0, 1.0]);
        let q = sparse(&[(1, 1.0)]);
        let mut scratch = Vec::new();
        let drawn: Vec<_> =
            (0..3).map(|i| p.draw_residual(Some(&q), 1, (i as f64 + 0.5) / 3.0, &mut scratch)).collect();
        assert_eq!(drawn, [Some(0), Some(2), Some(3)]);
    }
}
