//! [`HeadEvaluation`]: compares the drafts of a head on held-out texts with the full model.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch, multiply};
use selfspec_model::{CpuModel, ExitHeadTensor, TokenId};
use serde::Serialize;

use crate::data::corpus::Corpus;
use crate::data::rows::Rows;
use crate::error::TrainError;
use crate::head::frozen::Frozen;
use crate::head::rollout::Rollout;
use crate::head::source::RowSource;
use crate::layer::weights::Weights;
use crate::math::buffers::gather;
use crate::math::norm::norm;
use crate::math::wide::top;
use crate::math::wide::{LANES, exp, wide};

/// The temperature at which distributions are compared.
pub const TEMPERATURE: f32 = 0.8;
/// Rows whose logits are computed together.
const CHUNK: usize = 240;
/// Tokens of the whole vocabulary in one product.
const TOKENS: usize = 2048;
/// Rows of a group of texts.
const GROUP: usize = 768;
/// A token outside the draft vocabulary.
const OUTSIDE: u32 = u32::MAX;

/// The acceptance of a head in one domain, as means over every position of the answers where a
/// round could start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HeldOutAcceptance {
    /// Rounds.
    pub rounds: usize,
    /// Share of drafts that are the model's most likely token: of the first draft of a round; of
    /// the second if the first was; and so on.
    pub greedy: Vec<f64>,
    /// Sum of min(p, q) at [`TEMPERATURE`], the probability that rejection sampling accepts: of the
    /// first draft; of the second if the first was accepted; and so on.
    pub sampled: Vec<f64>,
    /// Mean number of accepted drafts in a round, with greedy sampling.
    pub greedy_length: f64,
    /// The same at [`TEMPERATURE`].
    pub sampled_length: f64,
}

/// The acceptance of a head, by domain and overall.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HeadEvaluation {
    /// By domain.
    pub domains: BTreeMap<String, HeldOutAcceptance>,
    /// In all domains together, with equal weight for every position.
    pub all: HeldOutAcceptance,
}

/// The full model's prediction at a position: its most likely token, as an index in the draft
/// vocabulary, and the logarithm of the sum of exponentials of all logits at [`TEMPERATURE`].
#[derive(Clone, Copy)]
struct ModelPrediction {
    token: u32,
    log_sum: f32,
}

/// Texts that go through the head together.
struct TextGroup {
    texts: Vec<usize>,
    predictions: Vec<ModelPrediction>, // (row that counts)
}

/// Held-out texts with the full model's predictions.
pub(crate) struct HeldOutEvaluator {
    groups: Vec<TextGroup>,
    domains: Vec<String>, // (text of the corpus)
}

impl HeldOutEvaluator {
    /// Computes the full model's predictions in the texts `held_out`.
    pub(crate) fn new(
        model: &CpuModel,
        frozen: &Frozen,
        ids: &[TokenId],
        source: &RowSource,
        corpus: &Corpus,
        held_out: &[usize],
        threads: usize,
    ) -> Result<HeldOutEvaluator, TrainError> {
        let mut groups: Vec<TextGroup> = Vec::new();
        let mut rows_left = 0;
        for text in held_out {
            let len = corpus.texts[*text].tokens.len();
            if len > rows_left {
                groups.push(TextGroup { texts: Vec::new(), predictions: Vec::new() });
                rows_left = GROUP.max(len);
            }
            rows_left -= len;
            groups.last_mut().expect("just made").texts.push(*text);
        }
        let (dim, mut normed, mut rows) = (model.config().dim, Vec::new(), Rows::default());
        let mut counted = Vec::new();
        for group in &groups {
            source.load(&group.texts, &mut rows)?;
            let wanted: Vec<usize> = (0..rows.len()).filter(|row| rows.counts(*row, 0)).collect();
            counted.push(wanted.len());
            let mut states = Vec::new();
            gather(rows.last(), dim, wanted.into_iter(), &mut states);
            let from = normed.len();
            normed.resize(from + states.len(), 0.0);
            frozen.norm(&states, &mut normed[from..]);
        }
        let mut predictions = predict(model, ids, &normed, threads).into_iter();
        for (group, count) in groups.iter_mut().zip(counted) {
            group.predictions = predictions.by_ref().take(count).collect();
        }
        Ok(HeldOutEvaluator { groups, domains: corpus.texts.iter().map(|text| text.domain.clone()).collect() })
    }

    /// Runs the head `drafts` positions ahead of every position that counts.
    pub(crate) fn evaluate(
        &self,
        w: &Weights,
        frozen: &Frozen,
        source: &RowSource,
        drafts: usize,
        threads: usize,
    ) -> Result<HeadEvaluation, TrainError> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<GroupCounts>> = self.groups.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.groups.len().max(1)) {
                scope.spawn(|| {
                    let (mut rollout, mut rows) = (Rollout::default(), Rows::default());
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(group) = self.groups.get(i) else { break };
                        let result = group.evaluate(w, frozen, source, drafts, &mut rollout, &mut rows);
                        *results[i].lock().unwrap_or_else(PoisonError::into_inner) = result;
                    }
                });
            }
        });
        let (mut domains, mut all): (BTreeMap<String, AcceptanceCounts>, _) =
            (BTreeMap::new(), AcceptanceCounts::new(drafts));
        for result in results {
            for (text, counts) in result.into_inner().unwrap_or_else(PoisonError::into_inner)? {
                all.add(&counts);
                domains.entry(self.domains[text].clone()).or_insert_with(|| AcceptanceCounts::new(drafts)).add(&counts);
            }
        }
        let domains = domains.into_iter().map(|(domain, counts)| (domain, counts.acceptance())).collect();
        Ok(HeadEvaluation { domains, all: all.acceptance() })
    }
}

/// The counts of each text of a group.
type GroupCounts = Result<Vec<(usize, AcceptanceCounts)>, TrainError>;

/// Counts over rounds. Shape of each: (draft).
struct AcceptanceCounts {
    rounds: usize,
    reached: Vec<f64>,  // rounds whose earlier drafts all agree and that have a position for this one
    agreed: Vec<f64>,   // and this one agrees too
    chance: Vec<f64>, // sum of the probabilities that all earlier drafts are accepted, for rounds with a position for this one
    accepted: Vec<f64>, // and this one is accepted too
}

impl AcceptanceCounts {
    fn new(drafts: usize) -> AcceptanceCounts {
        let zeros = || vec![0.0; drafts];
        AcceptanceCounts { rounds: 0, reached: zeros(), agreed: zeros(), chance: zeros(), accepted: zeros() }
    }

    fn add(&mut self, other: &AcceptanceCounts) {
        self.rounds += other.rounds;
        for (to, from) in [
            (&mut self.reached, &other.reached),
            (&mut self.agreed, &other.agreed),
            (&mut self.chance, &other.chance),
            (&mut self.accepted, &other.accepted),
        ] {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }

    fn acceptance(&self) -> HeldOutAcceptance {
        let shares = |part: &[f64], whole: &[f64]| -> Vec<f64> {
            part.iter().zip(whole).map(|(p, w)| if *w > 0.0 { p / w } else { 0.0 }).collect()
        };
        let length = |part: &[f64]| part.iter().sum::<f64>() / self.rounds.max(1) as f64;
        HeldOutAcceptance {
            rounds: self.rounds,
            greedy: shares(&self.agreed, &self.reached),
            sampled: shares(&self.accepted, &self.chance),
            greedy_length: length(&self.agreed),
            sampled_length: length(&self.accepted),
        }
    }
}

impl TextGroup {
    fn evaluate(
        &self,
        w: &Weights,
        frozen: &Frozen,
        source: &RowSource,
        drafts: usize,
        rollout: &mut Rollout,
        rows: &mut Rows,
    ) -> GroupCounts {
        source.load(&self.texts, rows)?;
        rollout.forward(w, rows, drafts);
        let comparisons: Vec<_> =
            (0..rollout.steps()).map(|step| self.compare_rows(w, frozen, rows, rollout, step)).collect();
        // An unfused head computes the same in every step.
        let of = |step: usize| &comparisons[step.min(comparisons.len() - 1)];
        let counts = |sequence: &std::ops::Range<usize>| {
            let mut counts = AcceptanceCounts::new(drafts);
            for start in sequence.clone().filter(|row| rows.counts(*row, 0)) {
                counts.rounds += 1;
                let (mut agree, mut chance) = (true, 1.0);
                for draft in (0..drafts).take_while(|d| start + d < sequence.end && rows.counts(start + d, *d)) {
                    let (agrees, overlap) = of(draft)[start + draft];
                    counts.reached[draft] += f64::from(u8::from(agree));
                    counts.chance[draft] += chance;
                    agree &= agrees;
                    chance *= f64::from(overlap);
                    counts.agreed[draft] += f64::from(u8::from(agree));
                    counts.accepted[draft] += chance;
                }
            }
            counts
        };
        Ok(self.texts.iter().copied().zip(rows.sequences.iter().map(counts)).collect())
    }

    /// For every row, whether the head's most likely token is the model's, and the overlap of their
    /// distributions.
    fn compare_rows(
        &self,
        w: &Weights,
        frozen: &Frozen,
        rows: &Rows,
        rollout: &Rollout,
        step: usize,
    ) -> Vec<(bool, f32)> {
        let (dim, vocab, mut scratch) = (w.shape.dim, frozen.vocab(), ProductScratch::default());
        let mut comparisons = vec![(false, 0.0); rows.len()];
        let counted: Vec<usize> = (0..rows.len()).filter(|row| rows.counts(*row, 0)).collect();
        let predictions: Vec<(usize, ModelPrediction)> =
            counted.into_iter().zip(self.predictions.iter().copied()).collect();
        let wanted: Vec<(usize, ModelPrediction)> =
            predictions.into_iter().filter(|(row, _)| rows.counts(*row, step)).collect();
        let (mut states, mut inverse) = (Vec::new(), vec![0.0; CHUNK]);
        let mut normed = vec![0.0; CHUNK * dim];
        let (mut targets, mut logits) = (vec![0.0; CHUNK * vocab], vec![0.0; CHUNK * vocab]);
        for chunk in wanted.chunks(CHUNK) {
            let normed = &mut normed[..chunk.len() * dim];
            let at: Vec<usize> = chunk.iter().map(|(row, _)| *row).collect();
            gather(rows.last(), dim, at.iter().copied(), &mut states);
            frozen.norm(&states, normed);
            frozen.logits(normed, &mut targets, &mut scratch);
            rollout.states(rows, step, &at, &mut states);
            let weight = w.vector(ExitHeadTensor::OutputNorm);
            norm(&states, dim, weight, w.shape.eps, &mut inverse[..chunk.len()], normed);
            frozen.logits(normed, &mut logits, &mut scratch);
            let rows = chunk.iter().zip(targets.chunks_exact(vocab).zip(logits.chunks_exact_mut(vocab)));
            for ((row, prediction), (target, logits)) in rows {
                let best = highest(logits);
                let overlap = overlap(logits, target, prediction.log_sum);
                comparisons[*row] = (best as u32 == prediction.token, overlap);
            }
        }
        comparisons
    }
}

/// The full model's predictions at normed final states, (row, dim).
fn predict(model: &CpuModel, ids: &[TokenId], normed: &[f32], threads: usize) -> Vec<ModelPrediction> {
    let (dim, vocab) = (model.config().dim, model.vocab());
    let count = normed.len() / dim;
    // For each row: the highest logit and its token, and the sum of exponentials relative to it.
    let mut best = vec![(f32::NEG_INFINITY, 0usize, 0.0f64); count];
    let share = count.div_ceil(threads.max(1)).max(1);
    for from in (0..vocab).step_by(TOKENS) {
        let tokens = TOKENS.min(vocab - from);
        let mut head = vec![0.0; tokens * dim];
        for (i, row) in head.chunks_exact_mut(dim).enumerate() {
            model.head_row((from + i) as TokenId, row);
        }
        let packed = PackedMatrix::of(MatrixView::new(&head, tokens, dim).transposed());
        std::thread::scope(|scope| {
            for (best, normed) in best.chunks_mut(share).zip(normed.chunks(share * dim)) {
                let packed = &packed;
                scope.spawn(move || {
                    let (mut logits, mut scratch) = (vec![0.0; CHUNK * tokens], ProductScratch::default());
                    for (best, normed) in best.chunks_mut(CHUNK).zip(normed.chunks(CHUNK * dim)) {
                        let view = MatrixView::new(normed, best.len(), dim);
                        multiply(view, packed.all(), Accumulate::Overwrite, &mut logits, tokens, &mut scratch);
                        for (best, logits) in best.iter_mut().zip(logits.chunks_exact(tokens)) {
                            let at = highest(logits);
                            if logits[at] > best.0 {
                                let shrink = f64::from((best.0 - logits[at]) / TEMPERATURE).exp();
                                *best = (logits[at], from + at, best.2 * shrink);
                            }
                            best.2 += sum_exp(logits, best.0);
                        }
                    }
                });
            }
        });
    }
    let prediction = |(logit, token, sum): (f32, usize, f64)| ModelPrediction {
        token: ids.binary_search(&(token as TokenId)).map_or(OUTSIDE, |i| i as u32),
        log_sum: logit / TEMPERATURE + sum.ln() as f32,
    };
    best.into_iter().map(prediction).collect()
}

wide! {
    /// Index of the highest value of a row, the first of equal ones.
    fn highest<'a>(row: &'a [f32]) -> usize {
        let top = top(row);
        row.iter().position(|x| *x == top).unwrap_or(0)
    }

    /// Sum of `exp((x - top) / TEMPERATURE)`.
    fn sum_exp<'a>(row: &'a [f32], top: f32) -> f64 {
        let mut total = 0.0;
        for block in row.chunks(4096) {
            let mut sums = [0.0f32; LANES];
            for chunk in block.chunks(LANES) {
                chunk.iter().zip(&mut sums).for_each(|(x, sum)| *sum += exp((x - top) * (1.0 / TEMPERATURE)));
            }
            total += f64::from(sums.iter().sum::<f32>());
        }
        total
    }

    /// Sum of min(p, q) at [`TEMPERATURE`]: q of the head's logits, which are overwritten, and p of
    /// the full model's, whose sum over the whole vocabulary has this logarithm.
    fn overlap<'a>(logits: &'a mut [f32], targets: &'a [f32], log_sum: f32) -> f32 {
        let top = top(logits);
        let mut sums = [0.0f32; LANES];
        for chunk in logits.chunks_mut(LANES) {
            for (x, sum) in chunk.iter_mut().zip(&mut sums) {
                *x = exp((*x - top) * (1.0 / TEMPERATURE));
                *sum += *x;
            }
        }
        let factor = 1.0 / sums.iter().sum::<f32>();
        let mut overlaps = [0.0f32; LANES];
        for (chunk, targets) in logits.chunks(LANES).zip(targets.chunks(LANES)) {
            for ((x, target), overlap) in chunk.iter().zip(targets).zip(&mut overlaps) {
                let (p, q) = (exp(target * (1.0 / TEMPERATURE) - log_sum), x * factor);
                *overlap += if p < q { p } else { q };
            }
        }
        overlaps.iter().sum()
    }
}
