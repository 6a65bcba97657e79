//! [`Perplexities`]: the perplexity of held-out text, after all layers and at the exits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use selfspec_model::TokenId;
use serde::{Deserialize, Serialize};

use super::pass::{Batch, Pass, Score};
use super::weights::ModelWeights;

/// Approximate tokens that are computed together.
const TOGETHER: usize = 1024;

/// The perplexity of held-out text after some layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitPerplexity {
    /// Number of layers.
    pub layers: usize,
    /// Perplexity: e to the mean cross-entropy of the next token.
    pub perplexity: f64,
    /// Share of the positions whose most probable token is that of all layers: the acceptance of a
    /// greedy draft.
    pub agreement: f64,
}

/// The perplexity after each exit and after all layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Perplexities {
    /// The exits, ascending, and last all layers.
    pub readings: Vec<ExitPerplexity>,
    /// Number of predicted tokens.
    pub tokens: usize,
}

impl Perplexities {
    /// The perplexity after all layers.
    pub fn full(&self) -> &ExitPerplexity {
        self.readings.last().expect("that of all layers is always there")
    }

    /// The perplexities of `spans` after each of these numbers of layers, which ascend and end with
    /// all. The number of threads does not change the result.
    pub(crate) fn of(packs: &ModelWeights, spans: &[Vec<TokenId>], layers: &[usize], threads: usize) -> Perplexities {
        let mut groups: Vec<&[Vec<TokenId>]> = Vec::new();
        let mut rest = spans;
        while !rest.is_empty() {
            let mut tokens = 0;
            let enough = |span: &Vec<TokenId>| {
                tokens += span.len();
                tokens >= TOGETHER
            };
            let len = rest.iter().position(enough).map_or(rest.len(), |i| i + 1);
            let (group, others) = rest.split_at(len);
            groups.push(group);
            rest = others;
        }
        let n = packs.layers.len();
        let scores: Vec<Mutex<Vec<Score>>> = groups.iter().map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, groups.len().max(1)) {
                scope.spawn(|| {
                    let (mut pass, mut batch) = (Pass::default(), Batch::default());
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(group) = groups.get(i) else { break };
                        batch.clear();
                        group.iter().for_each(|span| batch.push(span, vec![true; n]));
                        *scores[i].lock().expect("no thread has panicked") = pass.scores(packs, &batch, layers);
                    }
                });
            }
        });
        let scores: Vec<Vec<Score>> =
            scores.into_iter().map(|score| score.into_inner().expect("no thread has panicked")).collect();
        let tokens: usize = scores.iter().filter_map(|group| group.last()).map(|score| score.best.len()).sum();
        let reading = |(i, layers): (usize, &usize)| {
            let sum: f64 = scores.iter().map(|group| group[i].sum).sum();
            let same = |group: &Vec<Score>| {
                let all = &group.last().expect("that of all layers").best;
                group[i].best.iter().zip(all).filter(|(a, b)| a == b).count()
            };
            let agreed: usize = scores.iter().map(same).sum();
            let count = tokens.max(1) as f64;
            ExitPerplexity { layers: *layers, perplexity: (sum / count).exp(), agreement: agreed as f64 / count }
        };
        Perplexities { readings: layers.iter().enumerate().map(reading).collect(), tokens }
    }
}
