//! One layer over the active rows of a step.

use selfspec_kernels::{AttentionRow, Compute, InputForms, KvPages, MatrixProduct, PAGE_POSITIONS};

use crate::arch::tensor::LayerTensor as T;
use crate::forward::scratch::{Scratch, grow, recycled};
use crate::forward::states::RowStates;
use crate::kv::step::ValidatedStep;
use crate::panels::draft_heads::DraftHeads;
use crate::panels::layer::Layer;
use crate::panels::model::CpuModel;
use crate::profile::{PassPart, Profiler};
use crate::rope::Rope;

/// Everything that a pass reads and writes, borrowed from the executor for one step.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a CpuModel,
    pub(crate) heads: &'a DraftHeads,
    pub(crate) compute: &'a Compute,
    pub(crate) kv: &'a mut KvPages,
    pub(crate) states: &'a mut RowStates,
    pub(crate) rope: &'a mut Rope,
    pub(crate) local_rope: &'a mut Option<Rope>,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) profiler: &'a mut Profiler,
    pub(crate) without_exit_norm: bool, // a planted fault
}

impl Pass<'_> {
    /// Computes the rotations of the active rows, unless they are those of the layer before.
    pub(crate) fn set_positions(&mut self, step: &ValidatedStep<'_>) {
        let scratch = &mut *self.scratch;
        if scratch.active != scratch.was_active {
            let positions = || scratch.active.iter().map(|i| step.rows()[*i].pos);
            self.rope.set_positions(positions());
            if let Some(rope) = self.local_rope {
                rope.set_positions(positions());
            }
            scratch.was_active.clone_from(&scratch.active);
        }
        self.profiler.lap(PassPart::Enter);
    }

    /// One layer over the rows in `scratch.active`; its K and V lie in layer `l` of the cache.
    pub(crate) fn layer(&mut self, weights: &Layer, l: usize, step: &ValidatedStep<'_>) {
        self.query_key_value(weights, l, step, true);
        self.attend(weights, l, step);
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
        self.profiler.lap(PassPart::AttentionOutput);
        self.compute.add(&s.out[..m * c.dim], c.dim, &s.active, post_norm, &mut s.hidden);
        self.profiler.lap(PassPart::Add);
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
        self.profiler.lap(PassPart::Norm);
        let inputs = InputForms::of(&[down]);
        self.compute.gated(c.gate, &s.input, gate, up, inputs, &mut s.gated);
        self.profiler.lap(PassPart::Gate);
        self.compute.matmul(&s.gated, &mut [MatrixProduct { weights: down, out: &mut s.out[..m * c.dim] }]);
        self.profiler.lap(PassPart::Down);
        let post_norm = weights.vector(T::PostFeedForwardNorm).map(|w| (w, eps));
        self.compute.add(&s.out[..m * c.dim], c.dim, &s.active, post_norm, &mut s.hidden);
        self.profiler.lap(PassPart::Add);
    }

    /// Projects the active rows to q (where it is wanted), k and v, rotates q and k, and writes k
    /// and v into layer `l` of the cache.
    pub(crate) fn query_key_value(&mut self, weights: &Layer, l: usize, step: &ValidatedStep<'_>, with_query: bool) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let m = s.active.len();
        let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let [query, key, value] = [T::Query, T::Key, T::Value].map(|tensor| weights.matrix(tensor));
        let (norm, inputs) = (weights.norm(T::AttentionNorm), InputForms::of(&[query, key, value]));
        self.compute.norm(&s.hidden, c.dim, &s.active, norm, c.norm_eps, inputs, &mut s.input);
        self.profiler.lap(PassPart::Norm);
        grow(&mut s.query, m * q_dim);
        grow(&mut s.key, m * kv_dim);
        grow(&mut s.value, m * kv_dim);
        let mut jobs = [
            MatrixProduct { weights: key, out: &mut s.key[..m * kv_dim] },
            MatrixProduct { weights: value, out: &mut s.value[..m * kv_dim] },
            MatrixProduct { weights: query, out: &mut s.query[..m * q_dim] },
        ];
        self.compute.matmul(&s.input, &mut jobs[..if with_query { 3 } else { 2 }]);
        self.profiler.lap(PassPart::QueryKeyValue);
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
        self.profiler.lap(PassPart::Heads);
        for ((i, key), value) in s.active.iter().zip(s.key.chunks_exact(kv_dim)).zip(s.value.chunks_exact(kv_dim)) {
            let pos = step.rows()[*i].pos;
            let page = step.pages(*i)[pos / PAGE_POSITIONS];
            self.compute.write_kv(self.kv, l, page, pos % PAGE_POSITIONS, key, value);
        }
        self.profiler.lap(PassPart::CacheWrite);
    }

    /// Attention of the active rows over the cache, their own positions included.
    fn attend(&mut self, weights: &Layer, l: usize, step: &ValidatedStep<'_>) {
        let c = self.model.config();
        let s = &mut *self.scratch;
        let q_len = s.active.len() * c.heads * c.head_dim;
        grow(&mut s.attended, q_len);
        let mut attention_rows = recycled(std::mem::take(&mut s.attention_rows));
        attention_rows.extend(s.active.iter().map(|i| {
            let pos = step.rows()[*i].pos;
            AttentionRow { pages: step.pages(*i), pos, first: weights.first_visible(pos) }
        }));
        let (query, attended) = (&s.query[..q_len], &mut s.attended[..q_len]);
        self.compute.attention(self.kv, l, &attention_rows, c.heads, query, c.attention_scale, attended);
        s.attention_rows = recycled(attention_rows);
        self.profiler.lap(PassPart::Attention);
    }
}
