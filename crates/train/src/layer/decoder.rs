//! One decoder layer over many rows, and its gradient: the arithmetic of the model's forward pass,
//! in f32.

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch};
use selfspec_model::LayerTensor;

use crate::layer::attention::{Attention, KeyValue, StepQueries};
use crate::layer::layout::Matrix;
use crate::layer::rotary::{Turn, rotate};
use crate::layer::span::{Span, computed, give, take};
use crate::layer::weights::Weights;
use crate::math::buffers::{fit, zeros};
use crate::math::gate::{gated, gated_backward};
use crate::math::norm::{norm, norm_again, norm_backward};
use crate::math::wide::{add, add_rows, add_to_rows};

/// The input of a norm and the factor of each row, which the gradient needs again.
#[derive(Default)]
pub(crate) struct NormInput {
    pub(crate) input: Vec<f32>,
    pub(crate) inverse: Vec<f32>,
}

/// The values that a pass over the layer keeps for its gradient.
#[derive(Default)]
pub(crate) struct LayerActivations {
    /// The rows that leave the layer: one span for each sequence. The rows that enter are the spans
    /// of the step's K and V.
    pub(crate) spans: Vec<Span>,
    pub(crate) x: NormInput,   // (row that enters, dim)
    q: Vec<f32>,               // (row, heads, head_dim), rotated
    raw_q: NormInput,          // before their norm, where there is one
    raw_k: NormInput,          // (row that enters, kv_heads, head_dim)
    attended: Vec<f32>,        // (row, heads, head_dim)
    log_sums: Vec<f32>,        // (row, heads)
    attention: NormInput,      // (row, dim): the attention's part before its norm, where there is one
    middle: NormInput,         // (row, dim): between attention and feed-forward part
    gate: Vec<f32>,            // (row, ffn_dim)
    up: Vec<f32>,              // (row, ffn_dim)
    ffn: NormInput,            // (row, dim): the feed-forward part before its norm, where there is one
    pub(crate) out: Vec<f32>,  // (row, dim): what leaves the layer
    pub(crate) dout: Vec<f32>, // (row, dim): the gradient with respect to it, later to what `middle` is
    pub(crate) dx: Vec<f32>,   // (row that enters, dim): the gradient with respect to `x`
}

/// Buffers that all passes share.
#[derive(Default)]
pub(crate) struct LayerScratch {
    pub(crate) attention: Attention,
    pub(crate) products: ProductScratch,
    pub(crate) input: Vec<f32>,      // (row that enters, dim)
    leaving: Vec<f32>,               // (row, dim)
    wide: Vec<f32>,                  // (row, ffn_dim), or (row that enters, dim)
    part: Vec<f32>,                  // (row, dim)
    dq: Vec<f32>,                    // (row, heads, head_dim)
    dattended: Vec<f32>,             // (row, heads, head_dim)
    pub(crate) before: Vec<f32>,     // (row, anything): the gradient with respect to the input of a norm
    pub(crate) packed: PackedMatrix, // (row, inputs)
}

/// The rows of `from`, (row that enters, dim), that leave the layer: all, except in the first step.
fn leaving<'a>(spans: &[Span], step: usize, dim: usize, from: &'a [f32], out: &'a mut Vec<f32>) -> &'a [f32] {
    if step > 0 {
        return from;
    }
    take(spans, dim, from, out);
    out
}

/// Runs the layer over the rows in `kept.x.input`, as step `kv.len() - 1` of a rollout: K and V for
/// all of them, written to the last of `kv`, and the rest for the rows of `kept.spans`.
pub(crate) fn forward(w: &Weights, kv: &mut [KeyValue], kept: &mut LayerActivations, m: &mut LayerScratch) {
    let s = &w.shape;
    let (entering, rows) = (kept.x.input.len() / s.dim, computed(&kept.spans));
    let (q_len, kv_len, step) = (rows * s.q_dim(), entering * s.kv_dim(), kv.len() - 1);

    let input = fit(&mut m.input, entering * s.dim);
    norm(&kept.x.input, s.dim, w.vector(LayerTensor::AttentionNorm), s.eps, fit(&mut kept.x.inverse, entering), input);
    let now = &mut kv[step];
    let leavers = leaving(&kept.spans, step, s.dim, input, &mut m.leaving);
    w.forward(Matrix::Query, leavers, Accumulate::Overwrite, fit(&mut kept.q, q_len), &mut m.products);
    w.forward(Matrix::Key, input, Accumulate::Overwrite, fit(&mut now.k, kv_len), &mut m.products);
    w.forward(Matrix::Value, input, Accumulate::Overwrite, fit(&mut now.v, kv_len), &mut m.products);
    heads(w, &kept.spans, &mut kept.q, HeadSteps::query(w), &mut kept.raw_q);
    heads(w, &now.spans, &mut now.k, HeadSteps::key(w), &mut kept.raw_k);
    if let Some((bias, _)) = w.bias(LayerTensor::ValueBias) {
        add_to_rows(&mut now.v, bias);
    }
    if step == 0 {
        m.attention.set_exact(s, &kv[0]);
    }
    let attended = fit(&mut kept.attended, q_len);
    let log_sums = fit(&mut kept.log_sums, rows * s.heads);
    m.attention.forward(&StepQueries { shape: s, spans: &kept.spans, step, q: &kept.q }, kv, attended, log_sums);

    let middle = &mut kept.middle.input;
    middle.clear();
    middle.extend_from_slice(leaving(&kept.spans, step, s.dim, &kept.x.input, &mut m.leaving));
    m.input.resize(rows * s.dim, 0.0);
    if s.sandwich {
        let part = fit(&mut kept.attention.input, rows * s.dim);
        w.forward(Matrix::AttentionOutput, attended, Accumulate::Overwrite, part, &mut m.products);
        let inverse = fit(&mut kept.attention.inverse, rows);
        norm(part, s.dim, w.vector(LayerTensor::PostAttentionNorm), s.eps, inverse, &mut m.input);
        add(middle, &m.input);
    } else {
        w.forward(Matrix::AttentionOutput, attended, Accumulate::Add, middle, &mut m.products);
    }

    kept.out.clone_from(middle);
    if s.ffn_dim == 0 {
        return;
    }
    norm(
        middle,
        s.dim,
        w.vector(LayerTensor::FeedForwardNorm),
        s.eps,
        fit(&mut kept.middle.inverse, rows),
        &mut m.input,
    );
    let gate = fit(&mut kept.gate, rows * s.ffn_dim);
    let up = fit(&mut kept.up, rows * s.ffn_dim);
    w.forward(Matrix::Gate, &m.input, Accumulate::Overwrite, gate, &mut m.products);
    w.forward(Matrix::Up, &m.input, Accumulate::Overwrite, up, &mut m.products);
    let wide = fit(&mut m.wide, rows * s.ffn_dim);
    gated(s.gate, gate, up, wide);
    if s.sandwich {
        let part = fit(&mut kept.ffn.input, rows * s.dim);
        w.forward(Matrix::Down, wide, Accumulate::Overwrite, part, &mut m.products);
        norm(
            part,
            s.dim,
            w.vector(LayerTensor::PostFeedForwardNorm),
            s.eps,
            fit(&mut kept.ffn.inverse, rows),
            &mut m.input,
        );
        add(&mut kept.out, &m.input);
    } else {
        w.forward(Matrix::Down, wide, Accumulate::Add, &mut kept.out, &mut m.products);
    }
}

/// The steps after the projection to queries or to keys.
#[derive(Clone, Copy)]
struct HeadSteps {
    heads: usize,
    bias: LayerTensor,
    norm: LayerTensor,
}

impl HeadSteps {
    fn query(w: &Weights) -> HeadSteps {
        HeadSteps { heads: w.shape.heads, bias: LayerTensor::QueryBias, norm: LayerTensor::QueryNorm }
    }

    fn key(w: &Weights) -> HeadSteps {
        HeadSteps { heads: w.shape.kv_heads, bias: LayerTensor::KeyBias, norm: LayerTensor::KeyNorm }
    }
}

/// Applies bias, norm and rotation to the heads of every row, in place. `raw` keeps the values that
/// the norm's gradient needs.
fn heads(w: &Weights, spans: &[Span], x: &mut [f32], after: HeadSteps, raw: &mut NormInput) {
    let s = &w.shape;
    if let Some((bias, _)) = w.bias(after.bias) {
        add_to_rows(x, bias);
    }
    if s.qk_norm {
        raw.input.clear();
        raw.input.extend_from_slice(x);
        norm(&raw.input, s.head_dim, w.vector(after.norm), s.eps, fit(&mut raw.inverse, x.len() / s.head_dim), x);
    }
    rotate(x, s.head_dim, after.heads, spans, &s.rotations, Turn::Forward);
}

/// Replaces `d`, the gradient with respect to rotated heads, by that with respect to the output of
/// the matrix.
fn heads_backward(
    w: &Weights,
    spans: &[Span],
    d: &mut Vec<f32>,
    after: HeadSteps,
    raw: &NormInput,
    gradient: &mut [f32],
    before: &mut Vec<f32>,
) {
    let s = &w.shape;
    rotate(d, s.head_dim, after.heads, spans, &s.rotations, Turn::Back);
    if s.qk_norm {
        let place = w.layout.place(after.norm);
        zeros(before, d.len());
        norm_backward(&raw.input, s.head_dim, w.vector(after.norm), &raw.inverse, d, before, &mut gradient[place]);
        std::mem::swap(d, before);
    }
    if let Some((_, place)) = w.bias(after.bias) {
        add_rows(&mut gradient[place], d);
    }
}

/// Writes `kept.dx`, the gradient with respect to the layer's input, from `kept.dout`, that with
/// respect to its output.
///
/// Adds the gradients of the weights to `gradient`, and those of earlier steps' K and V to theirs
/// in `kv`. The gradient of its own K and V must be complete.
pub(crate) fn backward(
    w: &Weights,
    kv: &mut [KeyValue],
    kept: &mut LayerActivations,
    gradient: &mut [f32],
    m: &mut LayerScratch,
) {
    let s = &w.shape;
    let (entering, rows, step) = (kept.x.input.len() / s.dim, computed(&kept.spans), kv.len() - 1);
    if s.ffn_dim > 0 {
        ffn_backward(w, kept, gradient, m);
    }

    // The attention's part. `dout` is the gradient with respect to `middle`, and goes on to `x` as
    // it is.
    if s.sandwich {
        let part = zeros(&mut m.part, rows * s.dim);
        let place = w.layout.place(LayerTensor::PostAttentionNorm);
        let NormInput { input, inverse } = &kept.attention;
        let weight = w.vector(LayerTensor::PostAttentionNorm);
        norm_backward(input, s.dim, weight, inverse, &kept.dout, part, &mut gradient[place]);
    } else {
        m.part.clone_from(&kept.dout);
    }
    let dattended = fit(&mut m.dattended, rows * s.q_dim());
    w.backward(Matrix::AttentionOutput, &m.part, Accumulate::Overwrite, dattended, &mut m.products);
    m.packed.pack(MatrixView::new(&kept.attended, rows, s.q_dim()));
    w.gradient(Matrix::AttentionOutput, &m.part, &m.packed, gradient, &mut m.products);
    let dq = fit(&mut m.dq, rows * s.q_dim());
    let at = StepQueries { shape: s, spans: &kept.spans, step, q: &kept.q };
    m.attention.backward(&at, kv, &kept.attended, &kept.log_sums, dattended, dq);
    heads_backward(w, &kept.spans, &mut m.dq, HeadSteps::query(w), &kept.raw_q, gradient, &mut m.before);
    let KeyValue { spans, dk, dv, .. } = &mut kv[step];
    heads_backward(w, spans, dk, HeadSteps::key(w), &kept.raw_k, gradient, &mut m.before);
    if let Some((_, place)) = w.bias(LayerTensor::ValueBias) {
        add_rows(&mut gradient[place], dv);
    }

    // Back through the projections to their input: `dinput` of the rows that enter, and the
    // queries' part of those that leave.
    let input = fit(&mut m.input, entering * s.dim);
    norm_again(&kept.x.input, s.dim, w.vector(LayerTensor::AttentionNorm), &kept.x.inverse, input);
    m.packed.pack(MatrixView::new(input, entering, s.dim));
    let dinput = fit(&mut m.wide, entering * s.dim);
    for (matrix, d, into) in [(Matrix::Key, &*dk, Accumulate::Overwrite), (Matrix::Value, &*dv, Accumulate::Add)] {
        w.gradient(matrix, d, &m.packed, gradient, &mut m.products);
        w.backward(matrix, d, into, dinput, &mut m.products);
    }
    let leavers = leaving(&kept.spans, step, s.dim, input, &mut m.leaving);
    m.packed.pack(MatrixView::new(leavers, rows, s.dim));
    w.gradient(Matrix::Query, &m.dq, &m.packed, gradient, &mut m.products);
    let part = fit(&mut m.part, rows * s.dim);
    w.backward(Matrix::Query, &m.dq, Accumulate::Overwrite, part, &mut m.products);
    let dx = zeros(&mut kept.dx, entering * s.dim);
    for (from, to) in [(&*part, &mut *dinput), (&kept.dout, dx)] {
        match step {
            0 => give(&kept.spans, s.dim, from, to),
            _ => add(to, from),
        }
    }
    let place = w.layout.place(LayerTensor::AttentionNorm);
    let weight = w.vector(LayerTensor::AttentionNorm);
    norm_backward(&kept.x.input, s.dim, weight, &kept.x.inverse, dinput, &mut kept.dx, &mut gradient[place]);
}

/// The feed-forward part: turns `kept.dout` into the gradient with respect to `middle`.
fn ffn_backward(w: &Weights, kept: &mut LayerActivations, gradient: &mut [f32], m: &mut LayerScratch) {
    let s = &w.shape;
    let rows = computed(&kept.spans);
    if s.sandwich {
        let part = zeros(&mut m.part, rows * s.dim);
        let place = w.layout.place(LayerTensor::PostFeedForwardNorm);
        let NormInput { input, inverse } = &kept.ffn;
        norm_backward(
            input,
            s.dim,
            w.vector(LayerTensor::PostFeedForwardNorm),
            inverse,
            &kept.dout,
            part,
            &mut gradient[place],
        );
    } else {
        m.part.clone_from(&kept.dout);
    }
    let wide = fit(&mut m.wide, rows * s.ffn_dim);
    gated(s.gate, &kept.gate, &kept.up, wide);
    m.packed.pack(MatrixView::new(wide, rows, s.ffn_dim));
    w.gradient(Matrix::Down, &m.part, &m.packed, gradient, &mut m.products);
    w.backward(Matrix::Down, &m.part, Accumulate::Overwrite, wide, &mut m.products);
    gated_backward(s.gate, &mut kept.gate, &mut kept.up, wide);

    let input = fit(&mut m.input, rows * s.dim);
    norm_again(&kept.middle.input, s.dim, w.vector(LayerTensor::FeedForwardNorm), &kept.middle.inverse, input);
    m.packed.pack(MatrixView::new(input, rows, s.dim));
    let dinput = fit(&mut m.part, rows * s.dim);
    for (matrix, d, into) in
        [(Matrix::Gate, &kept.gate, Accumulate::Overwrite), (Matrix::Up, &kept.up, Accumulate::Add)]
    {
        w.gradient(matrix, d, &m.packed, gradient, &mut m.products);
        w.backward(matrix, d, into, dinput, &mut m.products);
    }
    let place = w.layout.place(LayerTensor::FeedForwardNorm);
    let weight = w.vector(LayerTensor::FeedForwardNorm);
    norm_backward(
        &kept.middle.input,
        s.dim,
        weight,
        &kept.middle.inverse,
        dinput,
        &mut kept.dout,
        &mut gradient[place],
    );
}
