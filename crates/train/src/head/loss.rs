//! The loss of a head: the distance of its distribution over the draft vocabulary from the full
//! model's.
//!
//! p is the full model's distribution, restricted to the draft vocabulary and renormalised; q is
//! the head's. The loss mixes the divergence KL(p | q) and 1 - sum of min(p, q), the rejection rate
//! of rejection sampling (Leviathan, Kalman and Matias 2023). Step j of a rollout has the weight
//! `decay`^j.
//!
//! Logits are computed in chunks of rows, all steps of a chunk together. The steps share their
//! targets, and no buffer has the size (row, vocabulary).

use selfspec_kernels::dense::ProductScratch;
use selfspec_model::ExitHeadTensor;

use crate::data::rows::Rows;
use crate::head::frozen::Frozen;
use crate::layer::decoder::LayerActivations;
use crate::layer::span::places;
use crate::layer::weights::Weights;
use crate::math::buffers::{fit, gather, zeros};
use crate::math::norm::{norm, norm_backward};
use crate::math::wide::top;
use crate::math::wide::{LANES, add, exp, wide};

/// Rows whose logits are computed together.
const CHUNK: usize = 240;

/// The weights of the losses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LossWeights {
    /// Weight of step j relative to step j - 1.
    pub(crate) decay: f32,
    /// Share of the rejection rate in the loss, from 0 to 1; the rest is the divergence's.
    pub(crate) refusal: f32,
    /// Rows that count in the whole batch. Shape: (step).
    pub(crate) counts: Vec<usize>,
}

impl LossWeights {
    fn scale(&self, step: usize) -> f32 {
        self.decay.powi(step as i32) / self.counts[step].max(1) as f32
    }

    /// The loss of a batch from its sums.
    pub(crate) fn total(&self, sums: &LossSums) -> f64 {
        let of = |step: usize| {
            let refused = self.counts[step] as f64 - sums.overlap[step];
            let mixed = f64::from(1.0 - self.refusal) * sums.divergence[step] + f64::from(self.refusal) * refused;
            f64::from(self.scale(step)) * mixed
        };
        (0..self.counts.len()).map(of).sum()
    }
}

/// Sums over rows that count. Shape of each: (step).
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LossSums {
    /// KL(p | q), in nats.
    pub(crate) divergence: Vec<f64>,
    /// Sum of min(p, q).
    pub(crate) overlap: Vec<f64>,
}

impl LossSums {
    pub(crate) fn zero(steps: usize) -> LossSums {
        LossSums { divergence: vec![0.0; steps], overlap: vec![0.0; steps] }
    }

    pub(crate) fn add(&mut self, other: &LossSums) {
        self.divergence.iter_mut().zip(&other.divergence).for_each(|(a, b)| *a += b);
        self.overlap.iter_mut().zip(&other.overlap).for_each(|(a, b)| *a += b);
    }
}

/// Buffers of the loss.
#[derive(Default)]
pub(crate) struct LossScratch {
    states: Vec<f32>,  // (chunk row, dim)
    normed: Vec<f32>,  // (chunk row, dim)
    inverse: Vec<f32>, // (chunk row)
    dstates: Vec<f32>, // (chunk row, dim)
    targets: Vec<f32>, // (chunk row, vocab)
    logits: Vec<f32>,  // (chunk row, vocab)
    products: ProductScratch,
}

/// The losses of all steps. Writes the gradient with respect to the layer's output to
/// `kept[..].dout`, and adds that of the output norm to `gradient`.
pub(crate) fn losses(
    frozen: &Frozen,
    w: &Weights,
    rows: &Rows,
    kept: &mut [LayerActivations],
    weighing: &LossWeights,
    gradient: &mut [f32],
    m: &mut LossScratch,
) -> LossSums {
    let (dim, vocab) = (w.shape.dim, frozen.vocab());
    let mut sums = LossSums::zero(kept.len());
    for kept in kept.iter_mut() {
        zeros(&mut kept.dout, kept.out.len());
    }
    let places: Vec<Vec<usize>> = kept.iter().map(|kept| places(rows.len(), &kept.spans)).collect();
    let output_norm = w.layout.place(ExitHeadTensor::OutputNorm);
    let wanted: Vec<usize> = (0..rows.len()).filter(|r| rows.counts(*r, 0)).collect();
    for chunk in wanted.chunks(CHUNK) {
        gather(rows.last(), dim, chunk.iter().copied(), &mut m.states);
        frozen.norm(&m.states, fit(&mut m.normed, chunk.len() * dim));
        frozen.logits(&m.normed, fit(&mut m.targets, chunk.len() * vocab), &mut m.products);
        let negative_entropy: Vec<f32> = m.targets.chunks_exact_mut(vocab).map(softmax).collect();
        for (step, kept) in kept.iter_mut().enumerate() {
            let counted: Vec<usize> = (0..chunk.len()).filter(|i| rows.counts(chunk[*i], step)).collect();
            if counted.is_empty() {
                continue;
            }
            let (len, scale) = (counted.len(), weighing.scale(step));
            gather(&kept.out, dim, counted.iter().map(|i| places[step][chunk[*i]]), &mut m.states);
            let normed = fit(&mut m.normed, len * dim);
            norm(&m.states, dim, w.vector(ExitHeadTensor::OutputNorm), w.shape.eps, fit(&mut m.inverse, len), normed);
            frozen.logits(normed, fit(&mut m.logits, len * vocab), &mut m.products);
            for (i, logits) in counted.iter().zip(m.logits.chunks_exact_mut(vocab)) {
                let target = &m.targets[i * vocab..][..vocab];
                let (divergence, overlap) = row_loss(logits, target, negative_entropy[*i], scale, weighing.refusal);
                sums.divergence[step] += f64::from(divergence);
                sums.overlap[step] += f64::from(overlap);
            }
            frozen.logits_backward(&m.logits, normed, &mut m.products);
            let dstates = zeros(&mut m.dstates, len * dim);
            let dweight = &mut gradient[output_norm.clone()];
            norm_backward(&m.states, dim, w.vector(ExitHeadTensor::OutputNorm), &m.inverse, normed, dstates, dweight);
            for (i, from) in counted.iter().zip(dstates.chunks_exact(dim)) {
                add(&mut kept.dout[places[step][chunk[*i]] * dim..][..dim], from);
            }
        }
    }
    sums
}

wide! {
    /// Replaces a row of logits by its softmax. Returns the sum of p ln p.
    fn softmax<'a>(row: &'a mut [f32]) -> f32 {
        let top = top(row);
        let (mut sums, mut weighed) = ([0.0f32; LANES], [0.0f32; LANES]);
        for chunk in row.chunks_mut(LANES) {
            for ((x, sum), weighed) in chunk.iter_mut().zip(&mut sums).zip(&mut weighed) {
                let (z, e) = (*x - top, exp(*x - top));
                *sum += e;
                *weighed += e * z.max(-1e30);
                *x = e;
            }
        }
        let (total, weighed): (f32, f32) = (sums.iter().sum(), weighed.iter().sum());
        let factor = 1.0 / total;
        row.iter_mut().for_each(|x| *x *= factor);
        weighed * factor - total.ln()
    }

    /// The divergence and overlap of a row of logits and the target `p`, whose sum of p ln p is
    /// given. The gradient with respect to the logits, times `scale`, replaces them.
    fn row_loss<'a>(logits: &'a mut [f32], p: &'a [f32], negative_entropy: f32, scale: f32, refusal: f32) -> (f32, f32) {
        let top = top(logits);
        let (mut sums, mut crossed) = ([0.0f32; LANES], [0.0f32; LANES]);
        for (chunk, p) in logits.chunks_mut(LANES).zip(p.chunks(LANES)) {
            for (((x, p), sum), cross) in chunk.iter_mut().zip(p).zip(&mut sums).zip(&mut crossed) {
                let z = *x - top;
                let e = exp(z);
                *sum += e;
                *cross += p * z;
                *x = e;
            }
        }
        let (total, cross): (f32, f32) = (sums.iter().sum(), crossed.iter().sum());
        let factor = 1.0 / total;
        let (mut overlaps, mut belows) = ([0.0f32; LANES], [0.0f32; LANES]);
        for (chunk, p) in logits.chunks_mut(LANES).zip(p.chunks(LANES)) {
            for (((x, p), overlap), below) in chunk.iter_mut().zip(p).zip(&mut overlaps).zip(&mut belows) {
                let q = *x * factor;
                let less = if q < *p { q } else { 0.0 };
                *overlap += if q < *p { q } else { *p };
                *below += less;
                *x = q;
            }
        }
        let (overlap, below): (f32, f32) = (overlaps.iter().sum(), belows.iter().sum());
        let (a, b) = (scale * (1.0 - refusal), scale * refusal);
        for (x, p) in logits.iter_mut().zip(p) {
            let q = *x;
            let less = if q < *p { 1.0 } else { 0.0 };
            *x = a * (q - p) - b * q * (less - below);
        }
        (negative_entropy - cross + total.ln(), overlap)
    }
}
