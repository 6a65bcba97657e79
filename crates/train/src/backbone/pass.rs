//! [`Pass`]: a batch of spans through the whole model, forward and backward, with layers skipped
//! for some spans.
//!
//! Each layer computes the rows of the spans for which it runs, densely. The hidden states of other
//! spans bypass it. Layers run the code of exit heads (`layer/decoder.rs`), as its first step, with
//! attention to all earlier positions.

use std::ops::Range;

use selfspec_model::TokenId;

use super::course::Term;
use super::readout::{self, Gradient, Target};
use super::tensors::Tensors;
use super::weights::ModelWeights;
use crate::layer::attention::KeyValue;
use crate::layer::decoder::{self, LayerActivations};
use crate::layer::span::Span;
use crate::math::buffers::zeros;
use crate::math::wide::add;

/// Spans that are computed together, one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    tokens: Vec<TokenId>,         // (row)
    sequences: Vec<Range<usize>>, // (span): its rows
    runs: Vec<Vec<bool>>,         // (span, layer)
    targets: Vec<Target>,         // rows that have a next token
}

impl Batch {
    /// Removes all spans and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.sequences.clear();
        self.runs.clear();
        self.targets.clear();
    }

    /// Adds a span, and whether each layer runs for it. Shape of `runs`: (layer).
    pub(crate) fn push(&mut self, span: &[TokenId], runs: Vec<bool>) {
        let from = self.tokens.len();
        self.tokens.extend_from_slice(span);
        self.sequences.push(from..from + span.len());
        self.runs.push(runs);
        self.targets.extend(span.iter().skip(1).enumerate().map(|(i, token)| Target { row: from + i, token: *token }));
    }

    /// Number of rows that predict a token.
    pub(crate) fn targets(&self) -> usize {
        self.targets.len()
    }
}

/// The values that one layer keeps for its gradient.
#[derive(Default)]
struct Stage {
    rows: Vec<Range<usize>>, // of the batch, of the spans for which it runs
    kv: Vec<KeyValue>,       // one
    kept: LayerActivations,
}

/// Computes passes, and keeps its buffers from one to the next.
#[derive(Default)]
pub(crate) struct Pass {
    stages: Vec<Stage>,    // (layer)
    states: Vec<f32>,      // (row, dim): the hidden states, after some layers
    dstates: Vec<f32>,     // (row, dim): the gradient with respect to them
    dexits: Vec<Vec<f32>>, // (term, row, dim): what each loss adds to it
    memory: decoder::LayerScratch,
    readout: readout::ReadoutScratch,
    // Buffers that layers need one after the other.
    out: Vec<f32>,
    dout: Vec<f32>,
    dx: Vec<f32>,
}

/// The scores of a readout.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Score {
    /// Sum of the cross-entropy, in nats.
    pub(crate) sum: f64,
    /// The most probable token of each row.
    pub(crate) best: Vec<TokenId>,
}

impl Pass {
    /// Sums of the cross-entropy of each of `terms`, which ascend and end with that of all layers.
    /// Adds the gradient of their weighted sum, times `scale`, to `gradient`.
    pub(crate) fn losses(
        &mut self,
        tensors: &Tensors,
        packs: &ModelWeights,
        batch: &Batch,
        terms: &[Term],
        scale: f32,
        gradient: &mut [f32],
    ) -> Vec<f64> {
        let n = packs.layers.len();
        let mut sums = Vec::with_capacity(terms.len());
        self.dexits.resize_with(self.dexits.len().max(terms.len()), Vec::new);
        self.embed(packs, batch);
        for l in 0..=n {
            if let Some(term) = terms.iter().position(|term| term.layers == l) {
                let dstates = zeros(&mut self.dexits[term], self.states.len());
                let (norm, head) = (tensors.output_norm.clone(), tensors.head.clone());
                let mut place = Gradient { all: gradient, norm, head };
                let scale = scale * terms[term].weight;
                let m = &mut self.readout;
                sums.push(packs.readout.losses(&self.states, &batch.targets, scale, dstates, &mut place, m));
            }
            if l < n {
                self.layer(packs, batch, l);
            }
        }
        zeros(&mut self.dstates, self.states.len());
        for l in (0..=n).rev() {
            if let Some(term) = terms.iter().position(|term| term.layers == l) {
                add(&mut self.dstates, &self.dexits[term]);
            }
            if l > 0 {
                self.layer_backward(packs, l - 1, &mut gradient[tensors.layers[l - 1].clone()]);
            }
        }
        let dim = tensors.shape.dim;
        let dembedding = &mut gradient[tensors.embedding.clone()];
        for (token, from) in batch.tokens.iter().zip(self.dstates.chunks_exact(dim)) {
            add(&mut dembedding[*token as usize * dim..][..dim], from);
        }
        sums
    }

    /// The scores of the readouts after each of these numbers of layers, which ascend.
    pub(crate) fn scores(&mut self, packs: &ModelWeights, batch: &Batch, layers: &[usize]) -> Vec<Score> {
        let n = packs.layers.len();
        let mut scores = Vec::with_capacity(layers.len());
        self.embed(packs, batch);
        for l in 0..=n {
            if layers.contains(&l) {
                let mut best = Vec::with_capacity(batch.targets());
                let sum = packs.readout.score(&self.states, &batch.targets, &mut best, &mut self.readout);
                scores.push(Score { sum, best });
            }
            if l < n {
                self.layer(packs, batch, l);
            }
        }
        scores
    }

    fn embed(&mut self, packs: &ModelWeights, batch: &Batch) {
        let dim = packs.layers[0].shape.dim;
        self.stages.resize_with(packs.layers.len(), Stage::default);
        self.states.clear();
        for token in &batch.tokens {
            self.states.extend_from_slice(&packs.embedding[*token as usize * dim..][..dim]);
        }
    }

    /// Runs layer `l` on the spans for which it runs.
    fn layer(&mut self, packs: &ModelWeights, batch: &Batch, l: usize) {
        let (w, stage) = (&packs.layers[l], &mut self.stages[l]);
        let dim = w.shape.dim;
        stage.rows.clear();
        stage.rows.extend(batch.sequences.iter().zip(&batch.runs).filter(|(_, runs)| runs[l]).map(|(r, _)| r.clone()));
        if stage.rows.is_empty() {
            return;
        }
        let mut at = 0;
        let dense = |rows: &Range<usize>| {
            let span = Span { position: 0, base: at, len: rows.len(), at };
            at += rows.len();
            span
        };
        let spans: Vec<Span> = stage.rows.iter().map(dense).collect();
        take(&stage.rows, dim, &self.states, &mut stage.kept.x.input);
        stage.kv.resize_with(1, KeyValue::default);
        stage.kv[0].spans.clone_from(&spans);
        stage.kept.spans = spans;
        stage.kept.out = std::mem::take(&mut self.out);
        decoder::forward(w, &mut stage.kv, &mut stage.kept, &mut self.memory);
        put(&stage.rows, dim, &stage.kept.out, &mut self.states);
        self.out = std::mem::take(&mut stage.kept.out);
    }

    /// Replaces `dstates`, the gradient with respect to the states after layer `l`, by that before
    /// it. Adds the gradient of the layer's weights to `gradient`.
    fn layer_backward(&mut self, packs: &ModelWeights, l: usize, gradient: &mut [f32]) {
        let (w, Stage { rows, kv, kept }) = (&packs.layers[l], &mut self.stages[l]);
        if rows.is_empty() {
            return;
        }
        let dim = w.shape.dim;
        (kept.dout, kept.dx) = (std::mem::take(&mut self.dout), std::mem::take(&mut self.dx));
        take(rows, dim, &self.dstates, &mut kept.dout);
        let KeyValue { k, v, dk, dv, .. } = &mut kv[0];
        zeros(dk, k.len());
        zeros(dv, v.len());
        // Later layers have overwritten the buffers.
        self.memory.attention.set_exact(&w.shape, &kv[0]);
        decoder::backward(w, kv, kept, gradient, &mut self.memory);
        put(rows, dim, &kept.dx, &mut self.dstates);
        (self.dout, self.dx) = (std::mem::take(&mut kept.dout), std::mem::take(&mut kept.dx));
    }
}

/// Copies some rows of `all`, (row, dim), to `out`, one after the other.
fn take(rows: &[Range<usize>], dim: usize, all: &[f32], out: &mut Vec<f32>) {
    out.clear();
    rows.iter().for_each(|rows| out.extend_from_slice(&all[rows.start * dim..rows.end * dim]));
}

/// Copies `from` to some rows of `all`, (row, dim).
fn put(rows: &[Range<usize>], dim: usize, from: &[f32], all: &mut [f32]) {
    let mut at = 0;
    for rows in rows {
        let len = rows.len() * dim;
        all[rows.start * dim..rows.end * dim].copy_from_slice(&from[at..at + len]);
        at += len;
    }
}
