//! [`Rollout`]: runs the head at every position, first from exact features and then from its own
//! states, and computes the gradient.
//!
//! Step 0 reads the full model's features of the previous position. Step j reads the state of step
//! j - 1 there. `layer/attention.rs` says which positions each one sees.

use selfspec_kernels::dense::{Accumulate, MatrixView};
use selfspec_model::ExitHeadTensor;

use crate::data::rows::{Rows, shift};
use crate::head::frozen::Frozen;
use crate::head::loss::{LossScratch, LossSums, LossWeights, losses};
use crate::layer::attention::KeyValue;
use crate::layer::decoder::{self, LayerActivations, LayerScratch, NormInput};
use crate::layer::layout::Matrix;
use crate::layer::span::{computed, give, places, places_before, take};
use crate::layer::weights::Weights;
use crate::math::buffers::{fit, gather, zeros};
use crate::math::norm::{norm, norm_again, norm_backward};
use crate::math::wide::add;

/// Computes rollouts, and keeps its buffers from one to the next.
#[derive(Default)]
pub(crate) struct Rollout {
    kv: Vec<KeyValue>,           // (step)
    kept: Vec<LayerActivations>, // (step)
    read: Vec<NormInput>,        // (step): the input from the previous position; features in step 0, then states
    exits: Exits,
    memory: LayerScratch,
    loss: LossScratch,
}

/// The exit's states, which all steps read.
#[derive(Default)]
struct Exits {
    inverse: Vec<f32>, // (row)
    normed: Vec<f32>,  // (row, dim)
    later: Vec<f32>,   // (row of step 1, dim): of them, those that later steps read
    part: Vec<f32>, // (row of step 1, dim): what they add to the inputs of later steps; then the gradient with respect to that
}

impl Rollout {
    /// Runs `steps` steps over the rows that count in each. A head without features, whose steps
    /// are all the same, runs one.
    pub(crate) fn forward(&mut self, w: &Weights, rows: &Rows, steps: usize) {
        let (dim, features) = (w.shape.dim, w.shape.features);
        let steps = if features > 0 { steps } else { 1 };
        self.kv.resize_with(steps, KeyValue::default);
        self.kept.resize_with(steps, LayerActivations::default);
        self.read.resize_with(steps, NormInput::default);
        for (step, (kv, kept)) in self.kv.iter_mut().zip(&mut self.kept).enumerate() {
            kept.spans = rows.counting(step);
            kv.spans = if step == 0 { rows.everything() } else { kept.spans.clone() };
        }
        if features == 0 {
            let x = &mut self.kept[0].x.input;
            x.clear();
            x.extend_from_slice(rows.exit());
            decoder::forward(w, &mut self.kv, &mut self.kept[0], &mut self.memory);
            return;
        }
        self.read_exits(w, rows);
        for step in 0..steps {
            let (before, now) = self.kept.split_at_mut(step);
            let (now, raw) = (&mut now[0], &mut self.read[step].input);
            match before.last() {
                None => {
                    fit(raw, rows.len() * features * dim);
                    for (i, tap) in rows.taps.features.iter().enumerate() {
                        shift(&rows.sequences, dim, &rows.states[*tap], i, features, raw);
                    }
                    let x = fit(&mut now.x.input, rows.len() * dim);
                    w.forward(
                        Matrix::FuseExit,
                        &self.exits.normed,
                        Accumulate::Overwrite,
                        x,
                        &mut self.memory.products,
                    );
                    self.join(w, Matrix::FuseFeatures, ExitHeadTensor::FeatureNorm, 0);
                }
                Some(before) => {
                    gather(&before.out, dim, places_before(&now.spans, &before.spans), raw);
                    let within = places(rows.len(), &self.kept[1].spans);
                    let now = &mut self.kept[step];
                    let wanted = now.spans.iter().flat_map(|span| span.rows()).map(|row| within[row]);
                    gather(&self.exits.part, dim, wanted, &mut now.x.input);
                    self.join(w, Matrix::GuessState, ExitHeadTensor::GuessNorm, step);
                }
            }
            decoder::forward(w, &mut self.kv[..=step], &mut self.kept[step], &mut self.memory);
        }
    }

    /// Normalises the exits, and computes their share of the inputs of later steps.
    fn read_exits(&mut self, w: &Weights, rows: &Rows) {
        let (dim, e) = (w.shape.dim, &mut self.exits);
        let (inverse, normed) = (fit(&mut e.inverse, rows.len()), fit(&mut e.normed, rows.len() * dim));
        norm(rows.exit(), dim, w.vector(ExitHeadTensor::ExitNorm), w.shape.eps, inverse, normed);
        if let Some(second) = self.kept.get(1) {
            take(&second.spans, dim, &e.normed, &mut e.later);
            let part = fit(&mut e.part, e.later.len());
            w.forward(Matrix::GuessExit, &e.later, Accumulate::Overwrite, part, &mut self.memory.products);
        }
    }

    /// Adds the input from the previous position to a step's input.
    fn join(&mut self, w: &Weights, matrix: Matrix, weight: ExitHeadTensor, step: usize) {
        let (dim, NormInput { input, inverse }) = (w.shape.dim, &mut self.read[step]);
        let normed = fit(&mut self.memory.input, input.len());
        norm(input, dim, w.vector(weight), w.shape.eps, fit(inverse, input.len() / dim), normed);
        w.forward(matrix, normed, Accumulate::Add, &mut self.kept[step].x.input, &mut self.memory.products);
    }

    /// Copies the head's states of the rows `wanted` after a step of the last rollout, in which
    /// they count, to `out`. Shape: (row, dim).
    pub(crate) fn states(&self, rows: &Rows, step: usize, wanted: &[usize], out: &mut Vec<f32>) {
        let kept = &self.kept[step];
        let places = places(rows.len(), &kept.spans);
        let dim = kept.out.len() / computed(&kept.spans).max(1);
        gather(&kept.out, dim, wanted.iter().map(|row| places[*row]), out);
    }

    /// Steps of the last rollout.
    pub(crate) fn steps(&self) -> usize {
        self.kept.len()
    }

    /// The losses of the last rollout. Adds their gradient to `gradient`.
    pub(crate) fn backward(
        &mut self,
        frozen: &Frozen,
        w: &Weights,
        rows: &Rows,
        weighing: &LossWeights,
        gradient: &mut [f32],
    ) -> LossSums {
        let sums = losses(frozen, w, rows, &mut self.kept, weighing, gradient, &mut self.loss);
        for kv in &mut self.kv {
            zeros(&mut kv.dk, kv.k.len());
            zeros(&mut kv.dv, kv.v.len());
        }
        // From here on `part` is the gradient with respect to the former `part`.
        zeros(&mut self.exits.part, self.exits.later.len());
        for step in (0..self.kept.len()).rev() {
            decoder::backward(w, &mut self.kv[..=step], &mut self.kept[step], gradient, &mut self.memory);
            if w.shape.features > 0 {
                self.join_backward(w, rows, step, gradient);
            }
        }
        if w.shape.features > 0 {
            self.exit_backward(w, rows, gradient);
        }
        sums
    }

    /// The gradients of a step's input: of the weights, of the states of the step before, and of
    /// the exits' part.
    fn join_backward(&mut self, w: &Weights, rows: &Rows, step: usize, gradient: &mut [f32]) {
        let (dim, m, NormInput { input, inverse }) = (w.shape.dim, &mut self.memory, &self.read[step]);
        let (matrix, norm_weight, parts) = match step {
            0 => (Matrix::FuseFeatures, ExitHeadTensor::FeatureNorm, w.shape.features),
            _ => (Matrix::GuessState, ExitHeadTensor::GuessNorm, 1),
        };
        let (before, now) = self.kept.split_at_mut(step);
        let (now, weight) = (&now[0], w.vector(norm_weight));
        let normed = fit(&mut m.input, input.len());
        norm_again(input, dim, weight, inverse, normed);
        m.packed.pack(MatrixView::new(normed, input.len() / (parts * dim), parts * dim));
        w.gradient(matrix, &now.dx, &m.packed, gradient, &mut m.products);
        w.backward(matrix, &now.dx, Accumulate::Overwrite, normed, &mut m.products);
        let dread = zeros(&mut m.before, input.len());
        let place = w.layout.place(norm_weight);
        norm_backward(input, dim, weight, inverse, normed, dread, &mut gradient[place]);
        let Some(before) = before.last_mut() else { return };
        for (from, place) in dread.chunks_exact(dim).zip(places_before(&now.spans, &before.spans)) {
            add(&mut before.dout[place * dim..][..dim], from);
        }
        let within = places(rows.len(), &self.kept[1].spans);
        let now = &self.kept[step];
        let wanted = now.spans.iter().flat_map(|span| span.rows()).map(|row| within[row]);
        for (from, place) in now.dx.chunks_exact(dim).zip(wanted) {
            add(&mut self.exits.part[place * dim..][..dim], from);
        }
    }

    fn exit_backward(&mut self, w: &Weights, rows: &Rows, gradient: &mut [f32]) {
        let (dim, m, e) = (w.shape.dim, &mut self.memory, &mut self.exits);
        let first = &self.kept[0].dx;
        m.packed.pack(MatrixView::new(&e.normed, rows.len(), dim));
        w.gradient(Matrix::FuseExit, first, &m.packed, gradient, &mut m.products);
        let dnormed = fit(&mut m.input, rows.len() * dim);
        w.backward(Matrix::FuseExit, first, Accumulate::Overwrite, dnormed, &mut m.products);
        if let Some(second) = self.kept.get(1) {
            m.packed.pack(MatrixView::new(&e.later, e.later.len() / dim, dim));
            w.gradient(Matrix::GuessExit, &e.part, &m.packed, gradient, &mut m.products);
            w.backward(Matrix::GuessExit, &e.part, Accumulate::Overwrite, &mut e.later, &mut m.products);
            give(&second.spans, dim, &e.later, dnormed);
        }
        // The states belong to the frozen model, so their gradient is unused.
        let unused = fit(&mut m.before, rows.len() * dim);
        let (weight, place) = (w.vector(ExitHeadTensor::ExitNorm), w.layout.place(ExitHeadTensor::ExitNorm));
        norm_backward(rows.exit(), dim, weight, &e.inverse, dnormed, unused, &mut gradient[place]);
    }
}
