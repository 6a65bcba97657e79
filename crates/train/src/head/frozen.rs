//! [`Frozen`]: the frozen model's final norm, and its head's rows for the draft vocabulary.

use selfspec_kernels::dense::{Accumulate, MatrixView, PackedMatrix, ProductScratch, multiply};
use selfspec_model::{CpuModel, TokenId};

use crate::math::norm::norm;

/// The frozen model's side of the loss.
pub(crate) struct Frozen {
    output_norm: Vec<f32>, // (dim)
    eps: f32,
    forward: PackedMatrix,  // (dim, vocab)
    backward: PackedMatrix, // (vocab, dim)
    vocab: usize,
}

impl Frozen {
    /// For a draft vocabulary of the tokens `ids`.
    pub(crate) fn of_model(model: &CpuModel, ids: &[TokenId]) -> Frozen {
        let dim = model.config().dim;
        let mut rows = vec![0.0; ids.len() * dim];
        for (id, row) in ids.iter().zip(rows.chunks_exact_mut(dim)) {
            model.head_row(*id, row);
        }
        Frozen::new(model.output_norm(), model.config().norm_eps, &rows)
    }

    /// With the weight of the final norm, (dim), and the head's rows, (vocab, dim).
    pub(crate) fn new(output_norm: &[f32], eps: f32, rows: &[f32]) -> Frozen {
        let (dim, vocab) = (output_norm.len(), rows.len() / output_norm.len());
        let view = MatrixView::new(rows, vocab, dim);
        let (forward, backward) = (PackedMatrix::of(view.transposed()), PackedMatrix::of(view));
        Frozen { output_norm: output_norm.to_vec(), eps, forward, backward, vocab }
    }

    /// Tokens of the draft vocabulary.
    pub(crate) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Final states, normed as the model does. Shape of both: (row, dim).
    pub(crate) fn norm(&self, states: &[f32], out: &mut [f32]) {
        let mut inverse = vec![0.0; states.len() / self.output_norm.len()];
        norm(states, self.output_norm.len(), &self.output_norm, self.eps, &mut inverse, out);
    }

    /// Logits of normed rows. `normed`: (row, dim); `out`: (row, vocab).
    pub(crate) fn logits(&self, normed: &[f32], out: &mut [f32], scratch: &mut ProductScratch) {
        let dim = self.output_norm.len();
        let normed = MatrixView::new(normed, normed.len() / dim, dim);
        multiply(normed, self.forward.all(), Accumulate::Overwrite, out, self.vocab, scratch);
    }

    /// Gradient with respect to normed rows from that with respect to their logits.
    pub(crate) fn logits_backward(&self, dlogits: &[f32], out: &mut [f32], scratch: &mut ProductScratch) {
        let dlogits = MatrixView::new(dlogits, dlogits.len() / self.vocab, self.vocab);
        multiply(dlogits, self.backward.all(), Accumulate::Overwrite, out, self.output_norm.len(), scratch);
    }
}
