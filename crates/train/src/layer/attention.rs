//! Attention in training: every position at once, in every step of a rollout, and its gradient.
//!
//! **Visible positions.** At inference a round starts at a committed position s. Its K and V, like
//! those before it, come from exact features. The head drafts position s + 1 from its own state at
//! s, s + 2 from that at s + 1, and so on. Each sees K and V of the positions drafted before it in
//! this round. In training every position is the start of a round. Step 0 computes all starts. Step
//! j computes, for all positions p at once, the position drafted j places after start p - j. It
//! sees
//!
//! - K and V of step 0 at positions `0..=p - j`,
//! - K and V of step i at position `p - j + i`, for i = 1 to j: those of its own round.
//!
//! A step computes only the queries of the rows that count in it. Step 0 computes K and V of all
//! rows.
//!
//! The gradient recomputes the scores, block by block of positions, so that memory does not grow
//! with the square of the length.

use std::ops::Range;

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch, multiply};

use crate::layer::shape::Shape;
use crate::layer::span::Span;
use crate::math::wide::{add_scaled, dot, exp, sum, wide};

/// Rows of queries in a block; each head of a group counts.
const BLOCK_ROWS: usize = 96;

/// K and V of one step, after rotation, and their gradients. Shape of each: (computed row,
/// kv_heads, head_dim).
#[derive(Default)]
pub(crate) struct KeyValue {
    /// The computed rows: one span for each sequence.
    pub(crate) spans: Vec<Span>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) dk: Vec<f32>,
    pub(crate) dv: Vec<f32>,
}

/// K and V of step 0 of one sequence and head, packed for the products of all steps.
#[derive(Default)]
struct ExactKeyValue {
    keys: PackedMatrix,        // (position, head_dim)
    keys_turned: PackedMatrix, // (head_dim, position)
    values: PackedMatrix,
    values_turned: PackedMatrix,
}

/// Attention over the rows of a batch of sequences, with its buffers.
#[derive(Default)]
pub(crate) struct Attention {
    exact: Vec<ExactKeyValue>, // (sequence, kv head)
    queries: Vec<f32>,         // (block row, head_dim), scaled
    scores: Vec<f32>,          // (block row, visible position)
    extra: Vec<f32>,           // (block row, earlier steps): scores of the round's own positions
    block: Vec<f32>,           // (block row, head_dim)
    dblock: Vec<f32>,
    dscores: Vec<f32>,
    packed: PackedMatrix,
    products: ProductScratch,
}

/// The queries of one step of a rollout.
pub(crate) struct StepQueries<'a> {
    pub(crate) shape: &'a Shape,
    /// The rows whose queries are computed: one span for each sequence.
    pub(crate) spans: &'a [Span],
    /// Number of the step, counted from 0.
    pub(crate) step: usize,
    /// Queries after rotation. Shape: (computed row, heads, head_dim).
    pub(crate) q: &'a [f32],
}

/// A block of positions of one sequence and one key head.
#[derive(Clone, Copy)]
struct Block {
    sequence: usize,
    position: usize, // the first
    at: usize,       // its place among the computed rows
    len: usize,      // positions
    kv: usize,       // key head
    keys: usize,     // positions of step 0 that the last position sees
    rows: usize,     // len times heads in a group
}

impl StepQueries<'_> {
    fn blocks(&self) -> impl Iterator<Item = Block> {
        let (kv_heads, group, step) = (self.shape.kv_heads, self.shape.group(), self.step);
        let size = (BLOCK_ROWS / group).max(16);
        self.spans.iter().enumerate().flat_map(move |(sequence, span)| {
            (0..kv_heads).flat_map(move |kv| {
                (0..span.len).step_by(size).map(move |from| {
                    let (len, position) = (size.min(span.len - from), span.position + from);
                    let keys = position + len - step;
                    Block { sequence, position, at: span.at + from, len, kv, keys, rows: len * group }
                })
            })
        })
    }

    /// Copies the block's heads of `rows` (row, heads, head_dim), times `factor`, to `out` (block
    /// row, head_dim).
    fn gather(&self, block: Block, rows: &[f32], factor: f32, out: &mut Vec<f32>) {
        let (width, q_dim) = (self.shape.group() * self.shape.head_dim, self.shape.q_dim());
        out.clear();
        for row in block.at..block.at + block.len {
            let heads = &rows[row * q_dim + block.kv * width..][..width];
            out.extend(heads.iter().map(|x| x * factor));
        }
    }

    /// The inverse of [`StepQueries::gather`]: calls `put` with each block row's place in `rows`
    /// and its values.
    fn scatter(&self, block: Block, from: &[f32], rows: &mut [f32], put: impl Fn(&mut [f32], &[f32])) {
        let (width, q_dim) = (self.shape.group() * self.shape.head_dim, self.shape.q_dim());
        for (i, from) in from.chunks_exact(width).enumerate() {
            put(&mut rows[(block.at + i) * q_dim + block.kv * width..][..width], from);
        }
    }

    /// The range in `kv` of the K or V of step `i` that the block's row `r` sees.
    fn own(&self, block: Block, r: usize, i: usize, kv: &KeyValue) -> Range<usize> {
        let position = block.position + r / self.shape.group() - (self.step - i);
        let span = &kv.spans[block.sequence];
        let place = span.at + (position - span.position);
        let at = place * self.shape.kv_dim() + block.kv * self.shape.head_dim;
        at..at + self.shape.head_dim
    }
}

impl Attention {
    /// Packs K and V of step 0. The caller does this before any other step of these sequences.
    pub(crate) fn set_exact(&mut self, shape: &Shape, exact: &KeyValue) {
        let (head_dim, kv_dim, count) = (shape.head_dim, shape.kv_dim(), exact.spans.len() * shape.kv_heads);
        self.exact.resize_with(self.exact.len().max(count), ExactKeyValue::default);
        for (i, packs) in self.exact.iter_mut().take(count).enumerate() {
            let (span, kv) = (&exact.spans[i / shape.kv_heads], i % shape.kv_heads);
            let at = span.at * kv_dim + kv * head_dim;
            let keys = MatrixView::strided(&exact.k[at..], span.len, head_dim, kv_dim);
            let values = MatrixView::strided(&exact.v[at..], span.len, head_dim, kv_dim);
            packs.keys.pack(keys);
            packs.keys_turned.pack(keys.transposed());
            packs.values.pack(values);
            packs.values_turned.pack(values.transposed());
        }
    }

    /// Writes the attention of every position of the step, and the logarithm of each softmax's sum.
    ///
    /// `kv`: K and V of steps 0 to `step.step`; `out`: (computed row, heads, head_dim); `log_sums`:
    /// (computed row, heads).
    pub(crate) fn forward(&mut self, step: &StepQueries<'_>, kv: &[KeyValue], out: &mut [f32], log_sums: &mut [f32]) {
        let (head_dim, group, heads) = (step.shape.head_dim, step.shape.group(), step.shape.heads);
        for block in step.blocks() {
            let packs = block.sequence * step.shape.kv_heads + block.kv;
            self.score(step, packs, block, kv);
            let sums: Vec<f32> = (0..block.rows)
                .map(|r| {
                    let (seen, scores, extra) = self.row(step, block, r);
                    softmax(&mut scores[..seen], extra)
                })
                .collect();
            for (i, sums) in sums.chunks_exact(group).enumerate() {
                log_sums[(block.at + i) * heads + block.kv * group..][..group].copy_from_slice(sums);
            }
            self.block.resize(block.rows * head_dim, 0.0);
            let weights = MatrixView::new(&self.scores, block.rows, block.keys);
            let values = self.exact[packs].values.part(0..block.keys, 0..head_dim);
            multiply(weights, values, Accumulate::Overwrite, &mut self.block, head_dim, &mut self.products);
            for (i, kv) in kv.iter().enumerate().skip(1) {
                for (r, out) in self.block.chunks_exact_mut(head_dim).enumerate() {
                    add_scaled(out, self.extra[r * step.step + i - 1], &kv.v[step.own(block, r, i, kv)]);
                }
            }
            step.scatter(block, &self.block, out, |to, from| to.copy_from_slice(from));
        }
    }

    /// Adds the gradients with respect to K and V of all steps up to this one, and writes `dq`,
    /// that with respect to the queries, from `dout`, that with respect to the output `out`.
    pub(crate) fn backward(
        &mut self,
        step: &StepQueries<'_>,
        kv: &mut [KeyValue],
        out: &[f32],
        log_sums: &[f32],
        dout: &[f32],
        dq: &mut [f32],
    ) {
        let (head_dim, group, heads, kv_dim) =
            (step.shape.head_dim, step.shape.group(), step.shape.heads, step.shape.kv_dim());
        for block in step.blocks() {
            let packs = block.sequence * step.shape.kv_heads + block.kv;
            self.score(step, packs, block, kv);
            step.gather(block, dout, 1.0, &mut self.dblock);
            step.gather(block, out, 1.0, &mut self.block);
            self.dscores.resize(block.rows * block.keys, 0.0);
            let douts = MatrixView::new(&self.dblock, block.rows, head_dim);
            let values = self.exact[packs].values_turned.part(0..head_dim, 0..block.keys);
            multiply(douts, values, Accumulate::Overwrite, &mut self.dscores, block.keys.max(1), &mut self.products);

            // `block` becomes the gradient of the scaled queries.
            for r in 0..block.rows {
                let log_sum = log_sums[(block.at + r / group) * heads + block.kv * group + r % group];
                let dout = &self.dblock[r * head_dim..][..head_dim];
                let own = &mut self.block[r * head_dim..][..head_dim];
                let across = product(dout, own);
                own.fill(0.0);
                let seen = block.position + r / group + 1 - step.step;
                let scores = &mut self.scores[r * block.keys..][..block.keys];
                softmax_backward(scores, &mut self.dscores[r * block.keys..][..block.keys], seen, log_sum, across);
                for (i, kv) in kv.iter_mut().enumerate().skip(1) {
                    let at = step.own(block, r, i, kv);
                    let weight = exp(self.extra[r * step.step + i - 1] - log_sum);
                    let KeyValue { k, v, dk, dv, .. } = kv;
                    let dscore = weight * (product(dout, &v[at.clone()]) - across);
                    add_scaled(&mut dv[at.clone()], weight, dout);
                    add_scaled(&mut dk[at.clone()], dscore, &self.queries[r * head_dim..][..head_dim]);
                    add_scaled(own, dscore, &k[at]);
                }
            }
            let dscores = MatrixView::new(&self.dscores, block.rows, block.keys);
            let keys = self.exact[packs].keys.part(0..block.keys, 0..head_dim);
            multiply(dscores, keys, Accumulate::Add, &mut self.block, head_dim, &mut self.products);
            step.scatter(block, &self.block, dq, |to, from| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from * step.shape.attention_scale);
            });
            let at = kv[0].spans[block.sequence].at * kv_dim + block.kv * head_dim;
            self.packed.pack(MatrixView::new(&self.queries, block.rows, head_dim));
            let turned = dscores.transposed();
            multiply(turned, self.packed.all(), Accumulate::Add, &mut kv[0].dk[at..], kv_dim, &mut self.products);
            self.packed.pack(MatrixView::new(&self.dblock, block.rows, head_dim));
            let weights = MatrixView::new(&self.scores, block.rows, block.keys).transposed();
            multiply(weights, self.packed.all(), Accumulate::Add, &mut kv[0].dv[at..], kv_dim, &mut self.products);
        }
    }

    /// Fills `queries`, `scores` and `extra` for a block.
    fn score(&mut self, step: &StepQueries<'_>, packs: usize, block: Block, kv: &[KeyValue]) {
        let head_dim = step.shape.head_dim;
        step.gather(block, step.q, step.shape.attention_scale, &mut self.queries);
        self.scores.resize(block.rows * block.keys, 0.0);
        let queries = MatrixView::new(&self.queries, block.rows, head_dim);
        let keys = self.exact[packs].keys_turned.part(0..head_dim, 0..block.keys);
        multiply(queries, keys, Accumulate::Overwrite, &mut self.scores, block.keys.max(1), &mut self.products);
        self.extra.clear();
        for (r, query) in self.queries.chunks_exact(head_dim).enumerate() {
            let own = |(i, kv): (usize, &KeyValue)| product(query, &kv.k[step.own(block, r, i, kv)]);
            self.extra.extend(kv.iter().enumerate().skip(1).map(own));
        }
    }

    /// The number of positions of step 0 that a block's row sees, its scores, and the scores of its
    /// own round's positions.
    fn row(&mut self, step: &StepQueries<'_>, block: Block, r: usize) -> (usize, &mut [f32], &mut [f32]) {
        let seen = block.position + r / step.shape.group() + 1 - step.step;
        let scores = &mut self.scores[r * block.keys..][..block.keys];
        scores[seen..].fill(0.0);
        (seen, scores, &mut self.extra[r * step.step..][..step.step])
    }
}

wide! {
    fn product<'a>(a: &'a [f32], b: &'a [f32]) -> f32 {
        dot(a, b)
    }

    /// Replaces scores by the weights of one softmax over both slices. Returns the logarithm of its
    /// sum.
    fn softmax<'a>(scores: &'a mut [f32], extra: &'a mut [f32]) -> f32 {
        let top = scores.iter().chain(extra.iter()).fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        scores.iter_mut().for_each(|s| *s = exp(*s - top));
        extra.iter_mut().for_each(|s| *s = exp(*s - top));
        let total = sum(scores) + extra.iter().sum::<f32>();
        let factor = 1.0 / total;
        scores.iter_mut().chain(extra.iter_mut()).for_each(|s| *s *= factor);
        top + total.ln()
    }

    /// Replaces the first `seen` scores by their weights, and `d`, the gradient with respect to the
    /// weights, by that with respect to the scores. The rest becomes 0.
    fn softmax_backward<'a>(scores: &'a mut [f32], d: &'a mut [f32], seen: usize, log_sum: f32, across: f32) {
        for (score, d) in scores[..seen].iter_mut().zip(&mut d[..seen]) {
            *score = exp(*score - log_sum);
            *d = *score * (*d - across);
        }
        scores[seen..].fill(0.0);
        d[seen..].fill(0.0);
    }
}
