//! Random numbers without a stream: each is a pure function of (seed, position, purpose). Neither
//! their order nor their number of uses matters.
//!
//! The generator is counter-based. A **key** is made of seed, purpose and position by the 64-bit
//! finaliser of SplitMix64 (Steele, Lea, Flood 2014: an xor-shift-multiply bijection that passes
//! the usual test batteries on counters). The i-th number of a key is the finaliser of `key + i *
//! golden`. Different purposes have different keys: the draw of a draft says nothing about the test
//! that accepts or rejects it.
//!
//! Gumbel noise for a whole vocabulary is expensive. [`NoiseKey::gumbel_argmax`] finds the token
//! with the highest `s(x) + G(x)` without a logarithm for almost every token: the size of the
//! random number bounds the noise from above, and a token whose bound is below the best so far
//! cannot win.
use pulp::NullaryFnOnce;
use selfspec_model::TokenId;

use crate::sample::softmax::PeakLogit;
use crate::sample::wide::wide;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The purpose of a random number. Each has its own keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoisePurpose {
    /// Gumbel noise of seeded sampling. Draft and target share it, which couples them.
    Coupled,
    /// Drawing a draft.
    Draft,
    /// Accepting or rejecting a draft.
    Accept,
    /// Drawing the replacement of a rejected draft.
    Residual,
    /// Drawing a token without a draft: plain decoding, and the bonus row.
    Target,
}

/// The position of a token in its sequence, and in its round.
///
/// Unseeded draws are keyed by both. A position that is drafted again in a later round gets new
/// numbers. With the old ones, the length of the new round would depend on them, because it depends
/// on the result of the old round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundPosition {
    /// Position in the sequence.
    pub pos: usize,
    /// Drafts of the round before it.
    pub row: usize,
}

/// The random numbers of one (seed, purpose, position).
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoiseKey(u64);

/// The finaliser of SplitMix64.
#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl NoiseKey {
    /// The key of seeded sampling: of the position alone, whatever the round.
    pub(crate) fn coupled(seed: u64, pos: usize) -> Self {
        NoiseKey::new(seed, NoisePurpose::Coupled, RoundPosition { pos, row: 0 })
    }

    /// The key of an unseeded draw.
    pub(crate) fn new(seed: u64, purpose: NoisePurpose, at: RoundPosition) -> Self {
        let tag = ((purpose as u64) << 32) | at.row as u64;
        let purpose = mix(mix(tag.wrapping_add(GOLDEN)) ^ seed);
        NoiseKey(mix(purpose.wrapping_add(GOLDEN.wrapping_mul(at.pos as u64 + 1))))
    }

    #[inline(always)]
    fn bits(self, i: u64) -> u64 {
        mix(self.0.wrapping_add(GOLDEN.wrapping_mul(i.wrapping_add(1))))
    }

    /// Uniform in [0, 1), 53 bits.
    pub(crate) fn uniform(self) -> f64 {
        (self.bits(0) >> 11) as f64 * 2f64.powi(-53)
    }

    /// The first 32 bits of token `x`'s noise. Two tokens share one hash.
    fn coarse(self, x: TokenId) -> u32 {
        let pair = self.bits(u64::from(x >> 1));
        if x & 1 == 0 { pair as u32 } else { (pair >> 32) as u32 }
    }

    /// Gumbel noise of token `x`, given its first 32 bits; 52 more are drawn below them, so that
    /// the tail is not cut off.
    fn gumbel(self, x: TokenId, coarse: u32) -> f64 {
        let fine = (self.bits((1 << 40) | u64::from(x)) >> 12) as f64 + 0.5;
        let h = (f64::from(coarse) + fine * 2f64.powi(-52)) * 2f64.powi(-32); // uniform in (0, 1)
        -(-(-h).ln_1p()).ln()
    }

    /// The token with the highest `score + Gumbel noise`, ties to the lowest id: one exact draw
    /// from the softmax of the scores. `tokens` are (id, score); minus infinity never wins. `first`
    /// is compared first: the higher its score, the fewer tokens need a logarithm.
    pub(crate) fn gumbel_argmax(self, first: (TokenId, f32), tokens: impl Iterator<Item = (TokenId, f32)>) -> TokenId {
        let mut best = (first.0, f64::from(first.1) + self.gumbel(first.0, self.coarse(first.0)));
        let mut bar = best.1 as f32 - BOUND_SLACK;
        for (x, score) in tokens {
            self.compare(x, score, self.coarse(x), &mut best, &mut bar);
        }
        best.0
    }

    /// [`NoiseKey::gumbel_argmax`] over a whole row. The score of logit i is `(row[i] - peak) *
    /// scale`, and its token the i-th of `tokens`, or token i where that is `None`. Shape of `row`:
    /// (tokens).
    pub(crate) fn gumbel_argmax_row(
        self,
        peak: PeakLogit,
        row: &[f32],
        tokens: Option<&[TokenId]>,
        scale: f32,
    ) -> TokenId {
        match tokens {
            None => wide(GumbelArgmaxAll { key: self, row, peak, scale }),
            Some(tokens) => wide(GumbelArgmaxSome { key: self, row, tokens, peak, scale }),
        }
    }

    #[inline(always)]
    fn compare(self, x: TokenId, score: f32, coarse: u32, best: &mut (TokenId, f64), bar: &mut f32) {
        if cannot_win(score, coarse, *bar) {
            return;
        }
        let total = f64::from(score) + self.gumbel(x, coarse);
        if total > best.1 || (total == best.1 && x < best.0) {
            *best = (x, total);
            *bar = total as f32 - BOUND_SLACK;
        }
    }
}

/// Whether `score` plus the noise that begins with `coarse` is certainly below `bar`.
#[inline(always)]
fn cannot_win(score: f32, coarse: u32, bar: f32) -> bool {
    // The noise is -ln(-ln(1 - h)) <= -ln(h), and h >= coarse / 2^32. The bits of a float, read as
    // an integer, are its logarithm but for a chord under the curve: log2 c >= bits / 2^23 - 127.
    // Where coarse is 0, the bits below it decide, and there is no bound.
    let log2 = (coarse as f32).to_bits() as f32 * (1.0 / 8_388_608.0) - 127.0;
    let bound = (32.0 - log2) * std::f32::consts::LN_2;
    (score + bound < bar) & (coarse != 0)
}

/// Tokens compared together: mostly none of them can win.
const BLOCK: usize = 32;

struct GumbelArgmaxAll<'a> {
    key: NoiseKey,
    row: &'a [f32],
    peak: PeakLogit,
    scale: f32,
}

impl NullaryFnOnce for GumbelArgmaxAll<'_> {
    type Output = TokenId;

    #[inline(always)]
    fn call(self) -> TokenId {
        let GumbelArgmaxAll { key, row, peak, scale } = self;
        let score = |l: f32| (l - peak.logit) * scale;
        let mut best = (peak.token, key.gumbel(peak.token, key.coarse(peak.token)));
        let mut bar = best.1 as f32 - BOUND_SLACK;
        let (groups, rest) = row.as_chunks::<BLOCK>();
        for (logits, start) in groups.iter().zip((0u32..).step_by(BLOCK)) {
            let mut coarse = [0u32; BLOCK];
            for (i, pair) in coarse.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let bits = key.bits(u64::from(start / 2) + i as u64);
                *pair = [bits as u32, (bits >> 32) as u32];
            }
            let mut none = true;
            for (l, coarse) in logits.iter().zip(&coarse) {
                none &= cannot_win(score(*l), *coarse, bar);
            }
            if none {
                continue;
            }
            for ((x, l), coarse) in (start..).zip(logits).zip(coarse) {
                key.compare(x, score(*l), coarse, &mut best, &mut bar);
            }
        }
        for (x, l) in ((row.len() - rest.len()) as TokenId..).zip(rest) {
            key.compare(x, score(*l), key.coarse(x), &mut best, &mut bar);
        }
        best.0
    }
}

/// The same over a part of the vocabulary, where each token's noise is computed alone.
struct GumbelArgmaxSome<'a> {
    key: NoiseKey,
    row: &'a [f32],
    tokens: &'a [TokenId],
    peak: PeakLogit,
    scale: f32,
}

impl NullaryFnOnce for GumbelArgmaxSome<'_> {
    type Output = TokenId;

    #[inline(always)]
    fn call(self) -> TokenId {
        let GumbelArgmaxSome { key, row, tokens, peak, scale } = self;
        let score = |l: f32| (l - peak.logit) * scale;
        let first = tokens[peak.token as usize];
        let mut best = (first, key.gumbel(first, key.coarse(first)));
        let mut bar = best.1 as f32 - BOUND_SLACK;
        for (logits, tokens) in row.chunks(BLOCK).zip(tokens.chunks(BLOCK)) {
            let mut coarse = [0u32; BLOCK];
            for (coarse, x) in coarse.iter_mut().zip(tokens) {
                *coarse = (key.bits(u64::from(*x >> 1)) >> (32 * (*x & 1))) as u32;
            }
            let mut none = true;
            for (l, coarse) in logits.iter().zip(&coarse) {
                none &= cannot_win(score(*l), *coarse, bar);
            }
            if none {
                continue;
            }
            for ((x, l), coarse) in tokens.iter().zip(logits).zip(coarse) {
                key.compare(*x, score(*l), coarse, &mut best, &mut bar);
            }
        }
        best.0
    }
}

/// Slack of the bound, so that its rounding to f32 cannot lose a winner: scores that can win are
/// below 2^16 in size.
const BOUND_SLACK: f32 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    /// The draw without a bound.
    fn unbounded(key: NoiseKey, scores: &[f32]) -> TokenId {
        let mut best = (0, f64::NEG_INFINITY);
        for (x, s) in (0..).zip(scores) {
            let total = f64::from(*s) + key.gumbel(x, key.coarse(x));
            if total > best.1 {
                best = (x, total);
            }
        }
        best.0
    }

    #[test]
    fn the_bound_never_changes_the_winner() {
        for pos in 0..400 {
            let scores: Vec<f32> = (0..1001u32).map(|x| ((x * 7919 + pos) % 1001) as f32 * -0.02).collect();
            let top = (0..).zip(&scores).find(|(_, s)| **s == 0.0).expect("one score is 0").0;
            let key = NoiseKey::coupled(42, pos as usize);
            let expected = unbounded(key, &scores);
            let peak = PeakLogit { token: top, logit: 0.0 };
            assert_eq!(key.gumbel_argmax_row(peak, &scores, None, 1.0), expected);
            let all: Vec<TokenId> = (0..1001).collect();
            assert_eq!(key.gumbel_argmax_row(peak, &scores, Some(&all), 1.0), expected);
            assert_eq!(key.gumbel_argmax((top, 0.0), (0..).zip(scores.iter().copied())), expected);
        }
    }

    #[test]
    fn wide_vectors_have_the_same_winner() {
        for pos in 0..200 {
            let row: Vec<f32> = (0..5003u32).map(|x| ((x * 7919 + pos) % 5003) as f32 * -0.01).collect();
            let (scale, peak) = (0.4 + pos as f32 * 0.02, PeakLogit::of(&row).expect("numbers"));
            let gumbel_argmax = || GumbelArgmaxAll { key: NoiseKey::coupled(3, pos as usize), row: &row, peak, scale };
            assert_eq!(wide(gumbel_argmax()), gumbel_argmax().call());
        }
    }

    /// A draft uses the noise of the target's tokens: where its vocabulary has the winner, it wins
    /// here too.
    #[test]
    fn a_draft_vocabulary_has_the_noise_of_its_tokens() {
        for pos in 0..300 {
            let row: Vec<f32> = (0..999u32).map(|x| ((x * 7919 + pos) % 999) as f32 * -0.01).collect();
            let tokens: Vec<TokenId> = (0..999).filter(|x| (x * 31 + pos) % 5 < 3).collect();
            let some: Vec<f32> = tokens.iter().map(|x| row[*x as usize]).collect();
            let (key, peak) = (NoiseKey::coupled(9, pos as usize), PeakLogit::of(&some).expect("numbers"));
            let gumbel_argmax = || GumbelArgmaxSome { key, row: &some, tokens: &tokens, peak, scale: 0.7 };
            let scores = |x: &TokenId| (*x, (row[*x as usize] - peak.logit) * 0.7);
            let first = (tokens[peak.token as usize], 0.0);
            let expected = key.gumbel_argmax(first, tokens.iter().map(scores));
            assert_eq!((wide(gumbel_argmax()), gumbel_argmax().call()), (expected, expected));
            let whole = key.gumbel_argmax_row(PeakLogit::of(&row).expect("numbers"), &row, None, 0.7);
            assert!(whole == expected || tokens.binary_search(&whole).is_err());
        }
    }

    #[test]
    fn the_race_draws_from_the_softmax() {
        let scores = [0.0f32, -1.0, -2.0, f32::NEG_INFINITY, -0.5];
        let total: f64 = scores.iter().map(|s| f64::from(*s).exp()).sum();
        let mut counts = [0u32; 5];
        let draws = 200_000;
        for pos in 0..draws {
            counts[NoiseKey::coupled(7, pos).gumbel_argmax_row(PeakLogit { token: 0, logit: 0.0 }, &scores, None, 1.0)
                as usize] += 1;
        }
        assert_eq!(counts[3], 0);
        for (count, s) in counts.iter().zip(scores) {
            let p = f64::from(s).exp() / total;
            let sigma = (p * (1.0 - p) / draws as f64).sqrt();
            assert!((f64::from(*count) / draws as f64 - p).abs() <= 5.0 * sigma, "{counts:?}");
        }
    }

    #[test]
    fn purposes_rows_positions_and_seeds_have_keys_of_their_own() {
        let mut keys = std::collections::HashSet::new();
        let purposes = [
            NoisePurpose::Coupled,
            NoisePurpose::Draft,
            NoisePurpose::Accept,
            NoisePurpose::Residual,
            NoisePurpose::Target,
        ];
        for seed in 0..8 {
            for purpose in purposes {
                for pos in 0..32 {
                    for row in 0..17 {
                        assert!(keys.insert(NoiseKey::new(seed, purpose, RoundPosition { pos, row }).0));
                    }
                }
            }
        }
    }

    #[test]
    fn uniforms_fill_the_unit_interval_evenly() {
        let mut bins = [0u32; 64];
        for pos in 0..64_000 {
            let u = NoiseKey::new(3, NoisePurpose::Accept, RoundPosition { pos, row: 0 }).uniform();
            assert!((0.0..1.0).contains(&u));
            bins[(u * 64.0) as usize] += 1;
        }
        let chi: f64 = bins.iter().map(|b| (f64::from(*b) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 63.0 + 5.0 * (2.0 * 63.0f64).sqrt(), "{chi}");
    }
}
