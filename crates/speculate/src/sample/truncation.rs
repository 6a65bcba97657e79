//! Top-k, top-p and min-p: the tokens of a row that remain, found without sorting the vocabulary.
//!
//! Order the tokens by logit, highest first, ties to the lowest id. Each of the three keeps a
//! prefix of that order: top-k by count, top-p by mass (of the tokens that top-k kept), min-p by
//! distance from the first. Together they keep the shortest of the prefixes.

use std::cmp::Ordering;

use selfspec_model::TokenId;

use crate::sample::params::SamplingParams;
use crate::sample::softmax::{PeakLogit, exp, sum_exp};

/// A token that may remain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenCandidate {
    pub(crate) token: TokenId,
    pub(crate) logit: f32,
    /// `(logit - peak) / temperature`, 0 for the most probable token.
    pub(crate) score: f32,
    /// `exp(score)`, where it was needed; see [`TokenTruncation::weigh_candidates`].
    pub(crate) weight: f32,
}

/// Highest logit first, ties to the lowest id.
fn by_rank(a: &TokenCandidate, b: &TokenCandidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The three limits, and the tokens of the latest row that they kept.
#[derive(Debug, Default)]
pub(crate) struct TokenTruncation {
    top_k: usize, // usize::MAX: off
    top_p: f64,   // 1: off
    floor: f32,   // ln(min_p); minus infinity: off
    kept: Vec<TokenCandidate>,
}

/// Tokens compared together: a block whose highest logit is too low is skipped.
const BLOCK: usize = 16;

impl TokenTruncation {
    pub(crate) fn new(params: &SamplingParams) -> Self {
        TokenTruncation {
            top_k: if params.top_k == 0 { usize::MAX } else { params.top_k },
            top_p: f64::from(params.top_p),
            floor: params.min_p.ln(),
            kept: Vec::new(),
        }
    }

    /// Takes the limits of another truncation, and keeps its own memory.
    pub(crate) fn take_limits(&mut self, other: &TokenTruncation) {
        (self.top_k, self.top_p, self.floor) = (other.top_k, other.top_p, other.floor);
    }

    /// Whether it leaves every row of `vocab` tokens as it is.
    pub(crate) fn is_off(&self, vocab: usize) -> bool {
        self.top_k >= vocab && self.top_p >= 1.0 && self.floor == f32::NEG_INFINITY
    }

    /// The tokens of `row` that remain at a temperature of `1 / scale`, in ascending order of ids;
    /// at least one. Weights are filled in. Logit i is that of the i-th of `tokens`, which ascend,
    /// or of token i where that is `None`. Shape of `row`: (tokens).
    pub(crate) fn select(
        &mut self,
        row: &[f32],
        tokens: Option<&[TokenId]>,
        peak: PeakLogit,
        scale: f32,
    ) -> &[TokenCandidate] {
        self.kept.clear();
        if self.top_k < row.len() {
            top_k(row, self.top_k, &mut self.kept);
            for c in &mut self.kept {
                c.score = (c.logit - peak.logit) * scale;
            }
            self.weigh_candidates();
            if self.top_p < 1.0 {
                let mass: f64 = self.kept.iter().map(|c| f64::from(c.weight)).sum();
                cut_by_mass(&mut self.kept, self.top_p * mass);
            }
        } else if self.top_p < 1.0 {
            self.gather_mass(row, peak, scale);
        } else {
            gather(row, peak, scale, self.floor, &mut self.kept);
            self.weigh_candidates();
        }
        if self.floor > f32::NEG_INFINITY {
            let floor = self.floor;
            self.kept.retain(|c| c.score >= floor);
        }
        self.kept.sort_unstable_by_key(|c| c.token);
        if let Some(tokens) = tokens {
            for c in &mut self.kept {
                c.token = tokens[c.token as usize];
            }
        }
        &self.kept
    }

    fn weigh_candidates(&mut self) {
        for c in &mut self.kept {
            c.weight = exp(c.score);
        }
    }

    /// Keeps the shortest prefix with a share of `top_p` of the whole row's mass, or a longer one
    /// that min-p cuts shorter anyway.
    fn gather_mass(&mut self, row: &[f32], peak: PeakLogit, scale: f32) {
        let total = sum_exp(row, peak.logit, scale);
        let need = self.top_p * total;
        // Tokens below this score cannot make up the rest of the mass, all together.
        let sure = ((1.0 - self.top_p) * total / row.len() as f64).ln() as f32 - 0.1;
        for floor in [-2.0, -5.0, -9.0, sure, f32::NEG_INFINITY] {
            let floor = f32::max(floor, self.floor);
            self.kept.clear();
            gather(row, peak, scale, floor, &mut self.kept);
            self.weigh_candidates();
            let mass: f64 = self.kept.iter().map(|c| f64::from(c.weight)).sum();
            if mass >= need {
                cut_by_mass(&mut self.kept, need);
                return;
            }
            if floor == self.floor {
                return; // all that min-p leaves
            }
        }
    }
}

/// Appends the tokens with a score of at least `floor`, except impossible ones.
fn gather(row: &[f32], peak: PeakLogit, scale: f32, floor: f32, kept: &mut Vec<TokenCandidate>) {
    let floor = floor.max(f32::MIN); // minus infinity never passes
    let score = |l: f32| (l - peak.logit) * scale;
    for (block, base) in row.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        if score(highest(block)) < floor {
            continue;
        }
        for (logit, token) in block.iter().zip(base..) {
            if score(*logit) >= floor {
                kept.push(TokenCandidate { token, logit: *logit, score: score(*logit), weight: 0.0 });
            }
        }
    }
}

/// Appends the `k` tokens that rank first, in no order; fewer where fewer are possible. Scores stay
/// 0.
pub(crate) fn top_k(row: &[f32], k: usize, kept: &mut Vec<TokenCandidate>) {
    let room = k.saturating_add(k.max(256));
    // The lowest logit of the k best so far. An equal one with a higher id does not enter.
    let mut bar = f32::NEG_INFINITY;
    for (block, base) in row.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        if highest(block) <= bar {
            continue;
        }
        for (logit, token) in block.iter().zip(base..) {
            if *logit > bar {
                kept.push(TokenCandidate { token, logit: *logit, score: 0.0, weight: 0.0 });
            }
        }
        if kept.len() > room {
            bar = keep_best(kept, k);
        }
    }
    if kept.len() > k {
        keep_best(kept, k);
    }
}

/// Keeps the `k` that rank first of more than `k`; returns the logit of the last of them.
fn keep_best(kept: &mut Vec<TokenCandidate>, k: usize) -> f32 {
    let last = k.saturating_sub(1);
    let (_, kth, _) = kept.select_nth_unstable_by(last, by_rank);
    let bar = kth.logit;
    kept.truncate(k);
    bar
}

#[inline(always)]
fn highest(block: &[f32]) -> f32 {
    match block.first_chunk::<BLOCK>() {
        Some(block) => {
            let mut best = *block;
            for width in [8, 4, 2, 1] {
                for i in 0..width {
                    best[i] = if best[i + width] > best[i] { best[i + width] } else { best[i] };
                }
            }
            best[0]
        }
        None => block.iter().copied().fold(f32::NEG_INFINITY, f32::max),
    }
}

/// Keeps the shortest prefix, in the order of rank, whose weights reach `need`: selection weighted
/// by mass, linear on average.
fn cut_by_mass(kept: &mut Vec<TokenCandidate>, need: f64) {
    // The prefix ends within start..end; `before` is the mass of what ranks before start.
    let (mut start, mut end, mut before) = (0, kept.len(), 0.0f64);
    while end - start > 16 {
        let middle = (end - start) / 2;
        kept[start..end].select_nth_unstable_by(middle, by_rank);
        let mass: f64 = kept[start..start + middle].iter().map(|c| f64::from(c.weight)).sum();
        if before + mass >= need {
            end = start + middle;
        } else {
            before += mass;
            start += middle;
        }
    }
    kept[start..end].sort_unstable_by(by_rank);
    let mut keep = start;
    while keep < end && (before < need || keep == 0) {
        before += f64::from(kept[keep].weight);
        keep += 1;
    }
    kept.truncate(keep);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: sort everything, take the shortest prefix.
    fn by_definition(row: &[f32], params: &SamplingParams) -> Vec<TokenId> {
        let mut order: Vec<usize> = (0..row.len()).filter(|i| row[*i] > f32::NEG_INFINITY).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
        if params.top_k > 0 {
            order.truncate(params.top_k);
        }
        let peak = row[order[0]];
        let weight = |i: &usize| (f64::from(row[*i] - peak) / f64::from(params.temperature)).exp();
        if params.top_p < 1.0 {
            let total: f64 = order.iter().map(weight).sum();
            let mut mass = 0.0;
            let mut keep = 0;
            while keep < order.len() && mass < f64::from(params.top_p) * total {
                mass += weight(&order[keep]);
                keep += 1;
            }
            order.truncate(keep);
        }
        order.retain(|i| weight(i) >= f64::from(params.min_p));
        let mut ids: Vec<TokenId> = order.into_iter().map(|i| i as TokenId).collect();
        ids.sort_unstable();
        ids
    }

    proptest! {
        #[test]
        fn what_remains_is_the_shortest_prefix(
            // Steps of 1/4 give ties; the odd step of p keeps masses away from exact equality.
            levels in prop::collection::vec(-40i32..40, 1..700),
            top_k in prop_oneof![Just(0usize), 1usize..60, 300usize..900],
            top_p in prop_oneof![Just(1.0f32), 0.0137f32..0.9971],
            min_p in prop_oneof![Just(0.0f32), 0.0011f32..0.9],
            temperature in 0.3f32..2.0,
        ) {
            let row: Vec<f32> = levels.iter().map(|l| *l as f32 * 0.25).collect();
            let params = SamplingParams { temperature, top_k, top_p, min_p, ..SamplingParams::default() };
            let peak = PeakLogit::of(&row).expect("finite");
            let mut truncation = TokenTruncation::new(&params);
            prop_assume!(!truncation.is_off(row.len()));
            let kept: Vec<TokenId> = truncation.select(&row, None, peak, 1.0 / temperature).iter().map(|c| c.token).collect();
            prop_assert_eq!(kept, by_definition(&row, &params));
        }
    }

    #[test]
    fn impossible_tokens_never_remain() {
        let mut row = vec![f32::NEG_INFINITY; 200];
        row[150] = 1.0;
        for (top_k, top_p, min_p) in [(5, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.01)] {
            let params = SamplingParams { temperature: 1.0, top_k, top_p, min_p, ..SamplingParams::default() };
            let peak = PeakLogit::of(&row).expect("one is possible");
            let mut truncation = TokenTruncation::new(&params);
            let kept: Vec<TokenId> = truncation.select(&row, None, peak, 1.0).iter().map(|c| c.token).collect();
            assert_eq!(kept, [150]);
        }
    }
}
