//! How good a head is: what it would draft on texts that were held out of training, against what the full model says there.

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
/// Rows that go through a vocabulary together.
const CHUNK: usize = 240;
/// Tokens of the whole vocabulary that are multiplied by at a time.
const TOKENS: usize = 2048;
/// Rows of a group of texts.
const GROUP: usize = 768;
/// Stands for a token outside of the draft vocabulary.
const OUTSIDE: u32 = u32::MAX;

/// How a head does in one domain, as means over every position of the answers where a round could begin.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Acceptance {
    /// Rounds.
    pub rounds: usize,
    /// Share of drafts that are the model's most likely token: of the first of a round; of the second where the first was; and so on.
    pub greedy: Vec<f64>,
    /// Sum of min(p, q) at [`TEMPERATURE`], which is the chance that rejection sampling accepts: of the first draft; of the second where the first
    /// was accepted; and so on.
    pub sampled: Vec<f64>,
    /// Drafts accepted in a round of as many, greedily.
    pub greedy_length: f64,
    /// The same at [`TEMPERATURE`].
    pub sampled_length: f64,
}

/// How a head does, by domain and in all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Judgement {
    /// By domain.
    pub domains: BTreeMap<String, Acceptance>,
    /// In all domains together, every position counting the same.
    pub all: Acceptance,
}

/// What the full model says at a position: its most likely token, as an index in the draft vocabulary, and the logarithm of the sum of
/// exponentials of all logits at [`TEMPERATURE`].
#[derive(Clone, Copy)]
struct Truth {
    token: u32,
    log_sum: f32,
}

/// Texts that go through the head together.
struct Group {
    texts: Vec<usize>,
    truths: Vec<Truth>, // (row that counts)
}

/// Held-out texts, and what the full model says in them.
pub(crate) struct Judge {
    groups: Vec<Group>,
    domains: Vec<String>, // (text of the corpus)
}

impl Judge {
    /// Computes what the full model says in the texts `held_out`.
    pub(crate) fn new(
        model: &CpuModel,
        frozen: &Frozen,
        ids: &[TokenId],
        source: &RowSource,
        corpus: &Corpus,
        held_out: &[usize],
        threads: usize,
    ) -> Result<Judge, TrainError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut rows_left = 0;
        for text in held_out {
            let len = corpus.texts[*text].tokens.len();
            if len > rows_left {
                groups.push(Group { texts: Vec::new(), truths: Vec::new() });
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
        let mut truths = truths(model, ids, &normed, threads).into_iter();
        for (group, count) in groups.iter_mut().zip(counted) {
            group.truths = truths.by_ref().take(count).collect();
        }
        Ok(Judge { groups, domains: corpus.texts.iter().map(|text| text.domain.clone()).collect() })
    }

    /// Runs the head `drafts` positions ahead of every position that counts.
    pub(crate) fn judge(
        &self,
        w: &Weights,
        frozen: &Frozen,
        source: &RowSource,
        drafts: usize,
        threads: usize,
    ) -> Result<Judgement, TrainError> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Tallies>> = self.groups.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.groups.len().max(1)) {
                scope.spawn(|| {
                    let (mut rollout, mut rows) = (Rollout::default(), Rows::default());
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(group) = self.groups.get(i) else { break };
                        let result = group.judge(w, frozen, source, drafts, &mut rollout, &mut rows);
                        *results[i].lock().unwrap_or_else(PoisonError::into_inner) = result;
                    }
                });
            }
        });
        let (mut domains, mut all): (BTreeMap<String, Tally>, _) = (BTreeMap::new(), Tally::new(drafts));
        for result in results {
            for (text, tally) in result.into_inner().unwrap_or_else(PoisonError::into_inner)? {
                all.add(&tally);
                domains.entry(self.domains[text].clone()).or_insert_with(|| Tally::new(drafts)).add(&tally);
            }
        }
        let domains = domains.into_iter().map(|(domain, tally)| (domain, tally.acceptance())).collect();
        Ok(Judgement { domains, all: all.acceptance() })
    }
}

/// What came of the texts of a group.
type Tallies = Result<Vec<(usize, Tally)>, TrainError>;

/// Counts over rounds. Shape of each: (draft).
struct Tally {
    rounds: usize,
    reached: Vec<f64>, // rounds in which all drafts before this one agree, and there is a position for it
    agreed: Vec<f64>,  // and it agrees too
    chance: Vec<f64>, // sum of the chances that all drafts before this one are accepted, where there is a position for it
    accepted: Vec<f64>, // and it is too
}

impl Tally {
    fn new(drafts: usize) -> Tally {
        let zeros = || vec![0.0; drafts];
        Tally { rounds: 0, reached: zeros(), agreed: zeros(), chance: zeros(), accepted: zeros() }
    }

    fn add(&mut self, other: &Tally) {
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

    fn acceptance(&self) -> Acceptance {
        let shares = |part: &[f64], whole: &[f64]| -> Vec<f64> {
            part.iter().zip(whole).map(|(p, w)| if *w > 0.0 { p / w } else { 0.0 }).collect()
        };
        let length = |part: &[f64]| part.iter().sum::<f64>() / self.rounds.max(1) as f64;
        Acceptance {
            rounds: self.rounds,
            greedy: shares(&self.agreed, &self.reached),
            sampled: shares(&self.accepted, &self.chance),
            greedy_length: length(&self.agreed),
            sampled_length: length(&self.accepted),
        }
    }
}

impl Group {
    fn judge(
        &self,
        w: &Weights,
        frozen: &Frozen,
        source: &RowSource,
        drafts: usize,
        rollout: &mut Rollout,
        rows: &mut Rows,
    ) -> Tallies {
        source.load(&self.texts, rows)?;
        rollout.forward(w, rows, drafts);
        let verdicts: Vec<_> = (0..rollout.steps()).map(|step| self.verdicts(w, frozen, rows, rollout, step)).collect();
        // An unfused head computes the same in every step.
        let of = |step: usize| &verdicts[step.min(verdicts.len() - 1)];
        let tally = |sequence: &std::ops::Range<usize>| {
            let mut tally = Tally::new(drafts);
            for start in sequence.clone().filter(|row| rows.counts(*row, 0)) {
                tally.rounds += 1;
                let (mut agree, mut chance) = (true, 1.0);
                for draft in (0..drafts).take_while(|d| start + d < sequence.end && rows.counts(start + d, *d)) {
                    let (agrees, overlap) = of(draft)[start + draft];
                    tally.reached[draft] += f64::from(u8::from(agree));
                    tally.chance[draft] += chance;
                    agree &= agrees;
                    chance *= f64::from(overlap);
                    tally.agreed[draft] += f64::from(u8::from(agree));
                    tally.accepted[draft] += chance;
                }
            }
            tally
        };
        Ok(self.texts.iter().copied().zip(rows.sequences.iter().map(tally)).collect())
    }

    /// For every row, whether the head's most likely token is the model's, and the overlap of their distributions.
    fn verdicts(&self, w: &Weights, frozen: &Frozen, rows: &Rows, rollout: &Rollout, step: usize) -> Vec<(bool, f32)> {
        let (dim, vocab, mut scratch) = (w.shape.dim, frozen.vocab(), ProductScratch::default());
        let mut verdicts = vec![(false, 0.0); rows.len()];
        let counted: Vec<usize> = (0..rows.len()).filter(|row| rows.counts(*row, 0)).collect();
        let truths: Vec<(usize, Truth)> = counted.into_iter().zip(self.truths.iter().copied()).collect();
        let wanted: Vec<(usize, Truth)> = truths.into_iter().filter(|(row, _)| rows.counts(*row, step)).collect();
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
            for ((row, truth), (target, logits)) in rows {
                let best = highest(logits);
                let overlap = overlap(logits, target, truth.log_sum);
                verdicts[*row] = (best as u32 == truth.token, overlap);
            }
        }
        verdicts
    }
}

/// What the full model says at each of some normed final states, (row, dim).
fn truths(model: &CpuModel, ids: &[TokenId], normed: &[f32], threads: usize) -> Vec<Truth> {
    let (dim, vocab) = (model.config().dim, model.vocab());
    let count = normed.len() / dim;
    // Of each row: the highest logit and its token, and the sum of exponentials relative to it.
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
    let truth = |(logit, token, sum): (f32, usize, f64)| Truth {
        token: ids.binary_search(&(token as TokenId)).map_or(OUTSIDE, |i| i as u32),
        log_sum: logit / TEMPERATURE + sum.ln() as f32,
    };
    best.into_iter().map(truth).collect()
}

wide! {
    /// Where the highest value of a row is: the first, if there are several.
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

    /// Sum of min(p, q) at [`TEMPERATURE`]: q of the head's logits, which are overwritten, and p of the full model's, whose sum over the whole
    /// vocabulary has this logarithm.
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
