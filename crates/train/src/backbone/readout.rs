//! [`Readout`]: the model's final norm and head, at any depth, and the cross-entropy of the next
//! token.
//!
//! Logits are computed in chunks of rows, so no buffer has the size (row, vocabulary).

use std::ops::Range;

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch, multiply};
use selfspec_model::TokenId;

use crate::math::buffers::{fit, gather, zeros};
use crate::math::norm::{norm, norm_backward};
use crate::math::wide::top;
use crate::math::wide::{LANES, add, exp, wide};

/// Rows whose logits are computed together.
const CHUNK: usize = 240;

/// A row that predicts a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) row: usize,
    pub(crate) token: TokenId,
}

/// The final norm and the head, packed.
pub(crate) struct Readout {
    norm: Vec<f32>, // (dim)
    eps: f32,
    vocab: usize,
    forward: PackedMatrix,  // (dim, vocab)
    backward: PackedMatrix, // (vocab, dim)
}

/// Buffers of a readout.
#[derive(Default)]
pub(crate) struct ReadoutScratch {
    states: Vec<f32>,     // (chunk row, dim)
    normed: Vec<f32>,     // (chunk row, dim)
    inverse: Vec<f32>,    // (chunk row)
    dstates: Vec<f32>,    // (chunk row, dim)
    logits: Vec<f32>,     // (chunk row, vocab)
    packed: PackedMatrix, // (chunk row, dim)
    products: ProductScratch,
}

/// A gradient and the place of the readout's share in it.
pub(crate) struct Gradient<'a> {
    pub(crate) all: &'a mut [f32],
    pub(crate) norm: Range<usize>,
    pub(crate) head: Range<usize>,
}

impl Readout {
    pub(crate) fn new(dim: usize, vocab: usize, eps: f32) -> Readout {
        Readout {
            norm: vec![1.0; dim],
            eps,
            vocab,
            forward: PackedMatrix::default(),
            backward: PackedMatrix::default(),
        }
    }

    /// Sets the weight of the norm, (dim), and the head's rows, (vocab, dim).
    pub(crate) fn set(&mut self, norm: &[f32], head: &[f32]) {
        self.norm.copy_from_slice(norm);
        let view = MatrixView::new(head, self.vocab, norm.len());
        self.forward.pack(view.transposed());
        self.backward.pack(view);
    }

    /// Writes the logits of the chunk's rows of `states`, (row, dim), to `m.logits`.
    fn logits(&self, states: &[f32], chunk: &[Target], m: &mut ReadoutScratch) {
        let (dim, len) = (self.norm.len(), chunk.len());
        gather(states, dim, chunk.iter().map(|target| target.row), &mut m.states);
        let normed = fit(&mut m.normed, len * dim);
        norm(&m.states, dim, &self.norm, self.eps, fit(&mut m.inverse, len), normed);
        let logits = fit(&mut m.logits, len * self.vocab);
        multiply(
            MatrixView::new(normed, len, dim),
            self.forward.all(),
            Accumulate::Overwrite,
            logits,
            self.vocab,
            &mut m.products,
        );
    }

    /// Sum of the cross-entropy of `targets` from `states`, (row, dim). Adds its gradient times
    /// `scale`: with respect to the states to `dstates`, (row, dim), and with respect to norm and
    /// head to `gradient`.
    pub(crate) fn losses(
        &self,
        states: &[f32],
        targets: &[Target],
        scale: f32,
        dstates: &mut [f32],
        gradient: &mut Gradient<'_>,
        m: &mut ReadoutScratch,
    ) -> f64 {
        let (dim, vocab) = (self.norm.len(), self.vocab);
        let mut sum = 0.0;
        for chunk in targets.chunks(CHUNK) {
            self.logits(states, chunk, m);
            let len = chunk.len();
            for (logits, target) in m.logits.chunks_exact_mut(vocab).zip(chunk) {
                sum += f64::from(cross_entropy(logits, target.token as usize, scale));
            }
            let dlogits = MatrixView::new(&m.logits[..len * vocab], len, vocab);
            m.packed.pack(MatrixView::new(&m.normed, len, dim));
            let head = &mut gradient.all[gradient.head.clone()];
            multiply(dlogits.transposed(), m.packed.all(), Accumulate::Add, head, dim, &mut m.products);
            multiply(dlogits, self.backward.all(), Accumulate::Overwrite, &mut m.normed, dim, &mut m.products);
            let dchunk = zeros(&mut m.dstates, len * dim);
            let dnorm = &mut gradient.all[gradient.norm.clone()];
            norm_backward(&m.states, dim, &self.norm, &m.inverse, &m.normed, dchunk, dnorm);
            for (target, from) in chunk.iter().zip(dchunk.chunks_exact(dim)) {
                add(&mut dstates[target.row * dim..][..dim], from);
            }
        }
        sum
    }

    /// Sum of the cross-entropy of `targets`, and the most probable token of each, the lowest of
    /// equal ones, appended to `best`.
    pub(crate) fn score(
        &self,
        states: &[f32],
        targets: &[Target],
        best: &mut Vec<TokenId>,
        m: &mut ReadoutScratch,
    ) -> f64 {
        let mut sum = 0.0;
        for chunk in targets.chunks(CHUNK) {
            self.logits(states, chunk, m);
            for (logits, target) in m.logits.chunks_exact_mut(self.vocab).zip(chunk) {
                let highest = top(logits);
                best.push(logits.iter().position(|x| *x == highest).unwrap_or(0) as TokenId);
                sum += f64::from(cross_entropy(logits, target.token as usize, 0.0));
            }
        }
        sum
    }
}

wide! {
    /// The cross-entropy of a row of logits and its token, in nats. The gradient with respect to
    /// the logits, times `scale`, replaces them.
    fn cross_entropy<'a>(logits: &'a mut [f32], token: usize, scale: f32) -> f32 {
        let (top, own) = (top(logits), logits[token]);
        let mut sums = [0.0f32; LANES];
        for chunk in logits.chunks_mut(LANES) {
            for (x, sum) in chunk.iter_mut().zip(&mut sums) {
                *x = exp(*x - top);
                *sum += *x;
            }
        }
        let total: f32 = sums.iter().sum();
        let factor = scale / total;
        logits.iter_mut().for_each(|x| *x *= factor);
        logits[token] -= scale;
        total.ln() + top - own
    }
}
