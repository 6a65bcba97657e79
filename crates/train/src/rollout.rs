//! A rollout: the head at every position, once from exact features and then on its own states, and the gradient of all of it.
//!
//! Step 0 reads the full model's features of the position before; step j reads what step j - 1 left there. What each position sees is
//! said in `attention.rs`.

use crate::attention::KeyValue;
use crate::frozen::Frozen;
use crate::layer::{self, Kept, Memory, Normed, fit, zeros};
use crate::layout::{Matrix, Tensor};
use crate::loss::{self, Sums, Weighing, losses};
use crate::norm::{norm, norm_again, norm_backward};
use crate::product::{Into, View};
use crate::rows::{Rows, shift};
use crate::weights::Weights;
use crate::wide::add;

/// Computes rollouts, in memory that is kept from one to the next.
#[derive(Default)]
pub(crate) struct Rollout {
    kv: Vec<KeyValue>,      // (step)
    kept: Vec<Kept>,        // (step)
    read: Vec<Normed>,      // (step): what it reads of the position before; features in step 0, then states
    exit_inverse: Vec<f32>, // (row)
    exit: [Vec<f32>; 2], // (row, dim): what the exits' states add to the inputs of step 0 and of all others; later, the gradients of that
    memory: Memory,
    loss: loss::Memory,
}

/// How the inputs of a step are joined.
struct Join {
    exit: Matrix,
    other: Matrix,
    norm: Tensor,
}

impl Join {
    fn of(step: usize) -> Join {
        match step {
            0 => Join { exit: Matrix::FuseExit, other: Matrix::FuseFeatures, norm: Tensor::FeatureNorm },
            _ => Join { exit: Matrix::GuessExit, other: Matrix::GuessState, norm: Tensor::GuessNorm },
        }
    }
}

impl Rollout {
    /// Runs `steps` steps; an unfused head, whose steps are all the same, runs one.
    pub(crate) fn forward(&mut self, w: &Weights, rows: &Rows, steps: usize) {
        let (dim, eps, len, features) = (w.shape.dim, w.shape.eps, rows.len(), w.shape.features);
        let steps = if features > 0 { steps } else { 1 };
        self.kv.resize_with(steps, KeyValue::default);
        self.kept.resize_with(steps, Kept::default);
        self.read.resize_with(steps, Normed::default);
        if features > 0 {
            let input = fit(&mut self.memory.input, len * dim);
            norm(rows.exit(), dim, w.vector(Tensor::ExitNorm), eps, fit(&mut self.exit_inverse, len), input);
            for (step, part) in self.exit.iter_mut().enumerate().take(steps) {
                w.forward(Join::of(step).exit, input, Into::Set, fit(part, len * dim), &mut self.memory.products);
            }
        }
        for step in 0..steps {
            let (before, now) = self.kept.split_at_mut(step);
            if features > 0 {
                let (join, parts) = (Join::of(step), if step == 0 { features } else { 1 });
                let read = &mut self.read[step];
                let raw = fit(&mut read.input, len * parts * dim);
                match before.last() {
                    Some(kept) => shift(&rows.sequences, dim, &kept.out, 0, 1, raw),
                    None => {
                        for (i, tap) in rows.taps.features.iter().enumerate() {
                            shift(&rows.sequences, dim, &rows.states[*tap], i, features, raw);
                        }
                    }
                }
                let input = fit(&mut self.memory.input, len * parts * dim);
                norm(raw, dim, w.vector(join.norm), eps, fit(&mut read.inverse, len * parts), input);
                now[0].x.input.clone_from(&self.exit[step.min(1)]);
                w.forward(join.other, input, Into::Add, &mut now[0].x.input, &mut self.memory.products);
            } else {
                now[0].x.input.clear();
                now[0].x.input.extend_from_slice(rows.exit());
            }
            layer::forward(w, &rows.sequences, &mut self.kv[..=step], &mut now[0], &mut self.memory);
        }
    }

    /// The head's states after step `step` of the last rollout. Shape: (row, dim).
    pub(crate) fn states(&self, step: usize) -> &[f32] {
        &self.kept[step.min(self.kept.len() - 1)].out
    }

    /// Steps of the last rollout.
    pub(crate) fn steps(&self) -> usize {
        self.kept.len()
    }

    /// The losses of the last rollout, whose gradient is added to `gradient`.
    pub(crate) fn backward(
        &mut self,
        frozen: &Frozen,
        w: &Weights,
        rows: &Rows,
        weighing: &Weighing,
        gradient: &mut [f32],
    ) -> Sums {
        let (dim, len) = (w.shape.dim, rows.len());
        let products = &mut self.memory.products;
        let sums = losses(frozen, w, rows, &mut self.kept, weighing, gradient, &mut self.loss, products);
        for kv in &mut self.kv {
            zeros(&mut kv.dk, len * w.shape.kv_dim());
            zeros(&mut kv.dv, len * w.shape.kv_dim());
        }
        // From here on `exit` holds the gradients with respect to the exits' parts.
        for part in &mut self.exit {
            zeros(part, len * dim);
        }
        for step in (0..self.kept.len()).rev() {
            let (before, now) = self.kept.split_at_mut(step);
            layer::backward(w, &rows.sequences, &mut self.kv[..=step], &mut now[0], gradient, &mut self.memory);
            if w.shape.features > 0 {
                add(&mut self.exit[step.min(1)], &now[0].dout);
                let dstates = before.last_mut().map(|kept| &mut kept.dout);
                read_backward(
                    w,
                    rows,
                    Join::of(step),
                    &now[0].dout,
                    &self.read[step],
                    dstates,
                    gradient,
                    &mut self.memory,
                );
            }
        }
        if w.shape.features > 0 {
            self.exit_backward(w, rows, gradient);
        }
        sums
    }

    fn exit_backward(&mut self, w: &Weights, rows: &Rows, gradient: &mut [f32]) {
        let (dim, len, m) = (w.shape.dim, rows.len(), &mut self.memory);
        let weight = w.vector(Tensor::ExitNorm);
        let input = fit(&mut m.input, len * dim);
        norm_again(rows.exit(), dim, weight, &self.exit_inverse, input);
        m.packed.pack(View::new(input, len, dim));
        for (step, d) in self.exit.iter().enumerate().take(self.kept.len()) {
            let (matrix, into) = (Join::of(step).exit, if step == 0 { Into::Set } else { Into::Add });
            w.gradient(matrix, d, &m.packed, gradient, &mut m.products);
            w.backward(matrix, d, into, input, &mut m.products);
        }
        // The states themselves are the frozen model's.
        let unused = fit(&mut m.before, len * dim);
        let place = w.layout.place(Tensor::ExitNorm);
        norm_backward(rows.exit(), dim, weight, &self.exit_inverse, input, unused, &mut gradient[place]);
    }
}

/// The side of a step's input that it reads of the position before, from `dx`, the gradient with respect to that input. Where these are
/// states of the step before, theirs is added to `dstates`.
#[allow(clippy::too_many_arguments)]
fn read_backward(
    w: &Weights,
    rows: &Rows,
    join: Join,
    dx: &[f32],
    read: &Normed,
    dstates: Option<&mut Vec<f32>>,
    gradient: &mut [f32],
    m: &mut Memory,
) {
    let (dim, len) = (w.shape.dim, rows.len());
    let weight = w.vector(join.norm);
    let input = fit(&mut m.input, read.input.len());
    norm_again(&read.input, dim, weight, &read.inverse, input);
    m.packed.pack(View::new(input, len, read.input.len() / len));
    w.gradient(join.other, dx, &m.packed, gradient, &mut m.products);
    w.backward(join.other, dx, Into::Set, input, &mut m.products);
    let dread = zeros(&mut m.before, read.input.len());
    let place = w.layout.place(join.norm);
    norm_backward(&read.input, dim, weight, &read.inverse, input, dread, &mut gradient[place]);
    let Some(dstates) = dstates else { return };
    for rows in rows.sequences.iter().filter(|rows| rows.len() > 1) {
        add(&mut dstates[rows.start * dim..(rows.end - 1) * dim], &dread[(rows.start + 1) * dim..rows.end * dim]);
    }
}
