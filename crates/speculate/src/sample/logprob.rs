//! Log-probabilities of committed tokens.

use selfspec_model::{TokenId, TokenLogprob};

use crate::sample::softmax::{PeakLogit, log_sum_exp};
use crate::sample::truncation::{TokenCandidate, top_k};

/// The log-probability of `token` in a row that was sampled from, with the `n` best tokens. Shape
/// of `row`: (vocabulary).
pub(crate) fn of(row: &[f32], token: TokenId, n: usize) -> TokenLogprob {
    // A row that was sampled from has a finite peak.
    let peak = PeakLogit::of(row).map_or(0.0, |p| p.logit);
    let total = log_sum_exp(row, peak);
    let logprob = |logit: f32| (f64::from(logit) - total) as f32;
    let mut best: Vec<TokenCandidate> = Vec::new();
    if n > 0 {
        top_k(row, n, &mut best);
        best.sort_unstable_by(|a, b| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token)));
    }
    let own = row.get(token as usize).map_or(f32::NEG_INFINITY, |l| logprob(*l));
    TokenLogprob { logprob: own, top: best.iter().map(|c| (c.token, logprob(c.logit))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_the_softmax() {
        let row: Vec<f32> = (0..500).map(|i| ((i * 37) % 101) as f32 * 0.1).collect();
        let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
        let got = of(&row, 7, 3);
        assert!((f64::from(got.logprob) - (f64::from(row[7]) - total.ln())).abs() < 1e-5);
        let peak = row.iter().copied().fold(f32::MIN, f32::max);
        let ids: Vec<TokenId> = (0..500).filter(|i| row[*i as usize] == peak).take(3).collect();
        assert_eq!(got.top.iter().map(|(t, _)| *t).collect::<Vec<_>>(), ids);
        assert_eq!(of(&row, 7, 0).top, []);
    }
}
