//! [`Weights`]: the weights of a layer or head during one optimizer step, packed for the products
//! of all shards.

use std::ops::Range;

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch, multiply};
use selfspec_model::ExitHeadTensor;

use crate::layer::layout::{Layout, Matrix};
use crate::layer::shape::Shape;

/// A matrix W of (out, in).
#[derive(Default)]
struct Pack {
    forward: PackedMatrix,  // W transposed: (in, out)
    backward: PackedMatrix, // W: (out, in)
    inputs: usize,
    outputs: usize,
}

/// The weights of a layer or head, packed.
pub(crate) struct Weights {
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    values: Vec<f32>, // as the layout says; of norms and biases only
    packs: Vec<Pack>, // (Matrix)
}

impl Weights {
    pub(crate) fn new(shape: Shape, values: &[f32]) -> Weights {
        let layout = Layout::new(&shape);
        let mut weights = Weights::empty(shape, layout);
        weights.set(values, 1);
        weights
    }

    /// Weights without values; [`Weights::set`] sets them.
    pub(crate) fn empty(shape: Shape, layout: Layout) -> Weights {
        let packs = Matrix::ALL.iter().map(|_| Pack::default()).collect();
        // Zeros from the system take no memory until they are written, and the places of matrices
        // never are.
        let values = vec![0.0; layout.len()];
        Weights { shape, layout, values, packs }
    }

    /// Sets new values, on `threads` threads.
    ///
    /// # Panics
    /// If their number differs from the layout.
    pub(crate) fn set(&mut self, values: &[f32], threads: usize) {
        assert_eq!(values.len(), self.layout.len(), "one value for each of the layout");
        let layout = &self.layout;
        for slot in layout.slots().iter().filter(|slot| !slot.is_matrix()) {
            self.values[slot.place.clone()].copy_from_slice(&values[slot.place.clone()]);
        }
        let mut jobs: Vec<_> = Matrix::ALL.into_iter().zip(&mut self.packs).collect();
        let each = jobs.len().div_ceil(threads.max(1));
        std::thread::scope(|scope| {
            for jobs in jobs.chunks_mut(each) {
                scope.spawn(move || {
                    for (matrix, pack) in jobs {
                        let Some(at) = matrix.at(layout) else { continue };
                        let view = at.view(values);
                        (pack.inputs, pack.outputs) = (at.cols, at.rows);
                        pack.forward.pack(view.transposed());
                        pack.backward.pack(view);
                    }
                });
            }
        });
    }

    /// The values of a norm or a bias that the head has.
    pub(crate) fn vector(&self, tensor: impl Into<ExitHeadTensor>) -> &[f32] {
        &self.values[self.layout.place(tensor)]
    }

    /// The values of a bias, if the head has it.
    pub(crate) fn bias(&self, tensor: impl Into<ExitHeadTensor>) -> Option<(&[f32], Range<usize>)> {
        let place = self.layout.slot(tensor)?.place.clone();
        Some((&self.values[place.clone()], place))
    }

    /// `y = x W^T` or `y += x W^T`. `x`: (row, in); `y`: (row, out).
    pub(crate) fn forward(
        &self,
        matrix: Matrix,
        x: &[f32],
        into: Accumulate,
        y: &mut [f32],
        scratch: &mut ProductScratch,
    ) {
        let Pack { forward, inputs, outputs, .. } = &self.packs[matrix as usize];
        let x = MatrixView::new(x, x.len() / inputs, *inputs);
        multiply(x, forward.all(), into, y, *outputs, scratch);
    }

    /// `dx = dy W` or `dx += dy W`.
    pub(crate) fn backward(
        &self,
        matrix: Matrix,
        dy: &[f32],
        into: Accumulate,
        dx: &mut [f32],
        scratch: &mut ProductScratch,
    ) {
        let Pack { backward, inputs, outputs, .. } = &self.packs[matrix as usize];
        let dy = MatrixView::new(dy, dy.len() / outputs, *outputs);
        multiply(dy, backward.all(), into, dx, *inputs, scratch);
    }

    /// `dW += dy^T x` in `gradient`, which lies as the values do. `x` is packed: (row, in).
    pub(crate) fn gradient(
        &self,
        matrix: Matrix,
        dy: &[f32],
        x: &PackedMatrix,
        gradient: &mut [f32],
        scratch: &mut ProductScratch,
    ) {
        let at = matrix.at(&self.layout).expect("asked for where the shape has it");
        let dy = MatrixView::new(dy, dy.len() / at.rows, at.rows).transposed();
        multiply(dy, x.all(), Accumulate::Add, &mut gradient[at.from..at.end], at.stride, scratch);
    }
}
