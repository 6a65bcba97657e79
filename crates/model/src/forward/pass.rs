//! The one forward pass: rows enter at one layer and leave at another, and each layer runs the rows that are active there.

use selfspec_kernels::{AttentionRow, Compute, InputForms, KvPages, MatrixProduct, PAGE_POSITIONS};

use crate::arch::tensor::LayerTensor as T;
use crate::backend::{Enter, Readout, Row, StepOutput};
use crate::fault::Fault;
use crate::kv::sequence::Sequence;
use crate::panels::draft_heads::DraftHeads;
use crate::panels::layer::Layer;
use crate::panels::model::CpuModel;
use crate::profile::{Part, Profiler};
use crate::rope::Rope;

/// Buffers of a step. They grow to the largest step and are kept, so that decoding does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) first_layer: Vec<usize>, // (row): the layer where it enters
    pub(crate) hidden: Vec<f32>,        // (row, dim)
    pub(crate) active: Vec<usize>,      // (active row): index of its row
    was_active: Vec<usize>,             // `active` of the layer before
    pub(crate) taps: Vec<f32>,          // (row, tap, dim): states that the exit head reads
    pub(crate) head_hidden: Vec<f32>,   // (row, dim): the exit head's residual stream
    pub(crate) fused: Vec<f32>,         // (active row, 2 dim)
    pub(crate) input: selfspec_kernels::Activations,
    query: Vec<f32>,                            // (active row, heads, head_dim)
    key: Vec<f32>,                              // (active row, kv_heads, head_dim)
    value: Vec<f32>,                            // (active row, kv_heads, head_dim)
    attended: Vec<f32>,                         // (active row, heads, head_dim)
    gated: selfspec_kernels::Activations,       // (active row, ffn_dim)
    pub(crate) out: Vec<f32>,                   // (active row, dim)
    attention_rows: Vec<AttentionRow<'static>>, // empty between layers: only its memory is kept
}

/// What a pass runs on, borrowed from the backend for one step.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a CpuModel,
    pub(crate) heads: &'a DraftHeads,
    pub(crate) compute: &'a Compute,
    pub(crate) kv: &'a mut KvPages,
    pub(crate) sequences: &'a mut [Option<Sequence>],
    pub(crate) rope: &'a mut Rope,
    pub(crate) local_rope: &'a mut Option<Rope>,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) profiler: &'a mut Profiler,
    pub(crate) fault: Option<Fault>,
}

impl Pass<'_> {
    /// Runs `rows`, which have been checked: their sequences are live, their pages taken, `scratch.first_layer` set.
    pub(crate) fn run(&mut self, rows: &[Row], out: &mut StepOutput) {
        let (n_layers, dim) = (self.model.config().n_layers, self.model.config().dim);
        let mut layer_rows = 0;
        self.profiler.begin();
        self.enter(rows);
        self.enter_taps(rows);
        self.scratch.was_active.clear();
        for l in 0..n_layers {
            self.reach_taps(rows, l);
            self.keep(rows, l);
            out.pass_taps(l, &self.scratch.hidden[..rows.len() * dim], dim);
            let scratch = &mut *self.scratch;
            scratch.active.clear();
            let first_layer = &scratch.first_layer;
            scratch.active.extend((0..rows.len()).filter(|i| rows[*i].plan.runs(l) && l >= first_layer[*i]));
            if scratch.active.is_empty() {
                continue;
            }
            layer_rows += scratch.active.len() as u64;
            self.set_positions(rows);
            self.layer(self.model.layer(l), l, rows);
        }
        self.reach_taps(rows, n_layers);
        self.keep(rows, n_layers);
        out.pass_taps(n_layers, &self.scratch.hidden[..rows.len() * dim], dim);
        self.profiler.lap(Part::Enter);
        self.exit_head(rows);
        out.pass_head_states(n_layers + 1, &self.scratch.head_hidden, rows.len() * dim, dim);
        self.leave(rows, out);
        out.layer_rows = layer_rows;
    }

    /// Computes the rotations of the active rows, unless they are those of the layer before.
    pub(crate) fn set_positions(&mut self, rows: &[Row]) {
        let scratch = &mut *self.scratch;
        if scratch.active != scratch.was_active {
            let positions = || scratch.active.iter().map(|i| rows[*i].pos);
            self.rope.set_positions(positions());
            if let Some(rope) = self.local_rope {
                rope.set_positions(positions());
            }
            scratch.was_active.clone_from(&scratch.active);
        }
        self.profiler.lap(Part::Enter);
    }

    /// Fills the residual stream: embeddings, or hidden states kept by earlier rows.
    fn enter(&mut self, rows: &[Row]) {
        let config = self.model.config();
        let hidden = &mut self.scratch.hidden;
        grow(hidden, rows.len() * config.dim);
        for (row, hidden) in rows.iter().zip(hidden.chunks_exact_mut(config.dim)) {
            match row.enter {
                Enter::Token => {
                    self.model.embedding().row(row.token as usize, hidden);
                    if config.embedding_scale != 1.0 {
                        hidden.iter_mut().for_each(|h| *h *= config.embedding_scale);
                    }
                }
                Enter::Kept => {
                    let sequence = live(self.sequences, row);
                    let slot = sequence.kept(row.pos).expect("checked when the row was admitted").slot;
                    hidden.copy_from_slice(&sequence.states[slot * config.dim..][..config.dim]);
                }
            }
        }
    }

    /// Keeps the hidden states of the rows whose exact prefix ends before layer `l`.
    fn keep(&mut self, rows: &[Row], l: usize) {
        let dim = self.model.config().dim;
        for (i, row) in rows.iter().enumerate().filter(|(_, r)| r.keep && r.plan.exact_prefix() == l) {
            let Some(sequence) = self.sequences[row.seq.0 as usize].as_mut() else { continue };
            let Some(kept) = sequence.kept(row.pos) else { continue };
            grow(&mut sequence.states, (kept.slot + 1) * dim);
            sequence.states[kept.slot * dim..][..dim].copy_from_slice(&self.scratch.hidden[i * dim..][..dim]);
            if let Some(head) = &self.heads.exit {
                let width = head.taps().count() * dim;
                grow(&mut sequence.taps, (kept.slot + 1) * width);
                sequence.taps[kept.slot * width..][..width].copy_from_slice(&self.scratch.taps[i * width..][..width]);
            }
        }
    }

    /// One layer over the rows in `scratch.active`; its K and V lie in layer `l` of the cache.
    pub(crate) fn layer(&mut self, weights: &Layer, l: usize, rows: &[Row]) {
        self.query_key_value(weights, l, rows, true);
        self.attend(weights, l, rows);
        let c = self.model.config();
        let s = &mut *self.scratch;
        let (eps, m) = (c.norm_eps, s.active.len());

        // Attention's output, added to the residual stream.
        let q_dim = c.heads * c.head_dim;
        let output = weights.matrix(T::AttentionOutput);
        self.compute.load(&s.attended[..m * q_dim], q_dim, InputForms::of(&[output]), &mut s.input);
        grow(&mut s.out, m * c.dim);
        self.compute.matmul(&s.input, &mut [MatrixProduct { weights: output, out: &mut s.out[..m * c.dim] }]);
        let post_norm = weights.vector(T::PostAttentionNorm).map(|w| (w, eps));
        self.profiler.lap(Part::AttentionOutput);
        self.compute.add(&s.out[..m * c.dim], c.dim, &s.active, post_norm, &mut s.hidden);
        self.profiler.lap(Part::Add);
        if weights.has_feed_forward() {
            self.feed_forward(weights);
        }
    }

    /// The gated feed-forward part of a layer, over the rows in `scratch.active`.
    fn feed_forward(&mut self, weights: &Layer) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let (eps, m) = (c.norm_eps, s.active.len());
        let [gate, up, down] = [T::Gate, T::Up, T::Down].map(|tensor| weights.matrix(tensor));
        let inputs = InputForms::of(&[gate, up]);
        self.compute.norm(&s.hidden, c.dim, &s.active, weights.norm(T::FeedForwardNorm), eps, inputs, &mut s.input);
        self.profiler.lap(Part::Norm);
        let inputs = InputForms::of(&[down]);
        self.compute.gated(c.gate, &s.input, gate, up, inputs, &mut s.gated);
        self.profiler.lap(Part::Gate);
        self.compute.matmul(&s.gated, &mut [MatrixProduct { weights: down, out: &mut s.out[..m * c.dim] }]);
        self.profiler.lap(Part::Down);
        let post_norm = weights.vector(T::PostFeedForwardNorm).map(|w| (w, eps));
        self.compute.add(&s.out[..m * c.dim], c.dim, &s.active, post_norm, &mut s.hidden);
        self.profiler.lap(Part::Add);
    }

    /// Projects the active rows to q (where it is wanted), k and v, rotates q and k, and writes k and v into layer `l` of the cache.
    pub(crate) fn query_key_value(&mut self, weights: &Layer, l: usize, rows: &[Row], with_query: bool) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let m = s.active.len();
        let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let [query, key, value] = [T::Query, T::Key, T::Value].map(|tensor| weights.matrix(tensor));
        let inputs = InputForms::of(&[query, key, value]);
        self.compute.norm(
            &s.hidden,
            c.dim,
            &s.active,
            weights.norm(T::AttentionNorm),
            c.norm_eps,
            inputs,
            &mut s.input,
        );
        self.profiler.lap(Part::Norm);
        grow(&mut s.query, m * q_dim);
        grow(&mut s.key, m * kv_dim);
        grow(&mut s.value, m * kv_dim);
        let mut jobs = [
            MatrixProduct { weights: key, out: &mut s.key[..m * kv_dim] },
            MatrixProduct { weights: value, out: &mut s.value[..m * kv_dim] },
            MatrixProduct { weights: query, out: &mut s.query[..m * q_dim] },
        ];
        self.compute.matmul(&s.input, &mut jobs[..if with_query { 3 } else { 2 }]);
        self.profiler.lap(Part::QueryKeyValue);
        let rope = match self.local_rope {
            Some(local) if weights.window.is_some() => local.rows(),
            _ => self.rope.rows(),
        };
        let heads = |x: &mut [f32], heads, bias: T, norm: T| {
            let norm = weights.vector(norm).map(|w| (w, c.norm_eps));
            self.compute.heads(x, heads, c.head_dim, weights.vector(bias), norm, &rope);
        };
        if with_query {
            heads(&mut s.query[..m * q_dim], c.heads, T::QueryBias, T::QueryNorm);
        }
        heads(&mut s.key[..m * kv_dim], c.kv_heads, T::KeyBias, T::KeyNorm);
        if let Some(bias) = weights.vector(T::ValueBias) {
            for value in s.value[..m * kv_dim].chunks_exact_mut(kv_dim) {
                value.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
            }
        }
        self.profiler.lap(Part::Heads);
        for ((i, key), value) in s.active.iter().zip(s.key.chunks_exact(kv_dim)).zip(s.value.chunks_exact(kv_dim)) {
            let row = &rows[*i];
            let page = live(self.sequences, row).pages[row.pos / PAGE_POSITIONS];
            self.compute.write_kv(self.kv, l, page, row.pos % PAGE_POSITIONS, key, value);
        }
        self.profiler.lap(Part::CacheWrite);
    }

    /// Attention of the active rows over the cache, their own positions included.
    fn attend(&mut self, weights: &Layer, l: usize, rows: &[Row]) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let q_len = s.active.len() * c.heads * c.head_dim;
        grow(&mut s.attended, q_len);
        let mut attention_rows = recycled(std::mem::take(&mut s.attention_rows));
        attention_rows.extend(s.active.iter().map(|i| {
            let row = &rows[*i];
            AttentionRow {
                pages: &live(self.sequences, row).pages,
                pos: row.pos,
                first: weights.first_visible(row.pos),
            }
        }));
        let (query, attended) = (&s.query[..q_len], &mut s.attended[..q_len]);
        self.compute.attention(self.kv, l, &attention_rows, c.heads, query, c.attention_scale, attended);
        s.attention_rows = recycled(attention_rows);
        self.profiler.lap(Part::Attention);
    }

    /// Norm and head of the rows that want logits, each by its readout.
    fn leave(&mut self, rows: &[Row], out: &mut StepOutput) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let weights = |readout: Readout| match readout {
            Readout::Nothing => None,
            Readout::Head => Some((self.model.head(), self.model.output_norm())),
            Readout::DraftVocab => self.heads.vocab.as_deref().map(|v| (&v.head, self.model.output_norm())),
            Readout::ExitHead => self.heads.exit.as_deref().map(|e| (&e.vocab.head, e.output_norm())),
        };
        let lens = rows.iter().filter_map(|row| weights(row.readout).map(|(head, _)| (row.readout, head.n())));
        let mut rest = out.prepare(lens);
        for readout in [Readout::Head, Readout::DraftVocab, Readout::ExitHead] {
            let Some((head, norm)) = weights(readout) else { continue };
            s.active.clear();
            s.active.extend((0..rows.len()).filter(|i| rows[*i].readout == readout));
            if s.active.is_empty() {
                continue;
            }
            let (logits, others) = rest.split_at_mut(s.active.len() * head.n());
            rest = others;
            let hidden = if readout == Readout::ExitHead { &s.head_hidden } else { &s.hidden };
            self.compute.norm(hidden, c.dim, &s.active, norm, c.norm_eps, InputForms::of(&[head]), &mut s.input);
            self.profiler.lap(Part::Norm);
            self.compute.matmul(&s.input, &mut [MatrixProduct { weights: head, out: &mut logits[..] }]);
            self.profiler.lap(Part::Head);
            if self.fault == Some(Fault::ExitNorm) {
                let drafts =
                    s.active.iter().zip(logits.chunks_exact_mut(head.n())).filter(|(i, _)| !rows[**i].plan.is_full());
                for (i, out) in drafts {
                    self.compute.load(&hidden[i * c.dim..][..c.dim], c.dim, InputForms::of(&[head]), &mut s.input);
                    self.compute.matmul(&s.input, &mut [MatrixProduct { weights: head, out }]);
                }
            }
        }
    }
}

pub(crate) fn live<'a>(sequences: &'a [Option<Sequence>], row: &Row) -> &'a Sequence {
    sequences[row.seq.0 as usize].as_ref().expect("checked when the row was admitted")
}

pub(crate) fn grow(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}

/// The memory of `rows` for rows of another lifetime: collecting an emptied vector in place keeps its allocation.
fn recycled<'a>(mut rows: Vec<AttentionRow<'_>>) -> Vec<AttentionRow<'a>> {
    rows.clear();
    rows.into_iter().map(|_| unreachable!("the vector was emptied")).collect()
}
