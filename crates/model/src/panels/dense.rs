//! A model's weights as plain floats, for training.

use selfspec_kernels::RopeStyle;

use super::model::CpuModel;
use crate::arch::tensor::LayerValues;
use crate::row::TokenId;

/// The rotary angles of positions `0..n`, as the model's global layers and its exit heads use them.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotations {
    /// Cosines. Shape: (position, rot / 2).
    pub cos: Vec<f32>,
    /// Sines. Shape: (position, rot / 2).
    pub sin: Vec<f32>,
    /// Leading dimensions of a head that turn.
    pub rot: usize,
    /// Which dimensions make a pair.
    pub style: RopeStyle,
}

impl CpuModel {
    /// The weights of layer `l`, as the floats that their blocks stand for. Shapes: see
    /// [`LayerTensor::shape`](crate::LayerTensor::shape).
    ///
    /// # Panics
    /// If the model has no layer `l`.
    pub fn dense_layer(&self, l: usize) -> LayerValues<Vec<f32>> {
        self.layer(l).dense()
    }

    /// The head's row for `token`. `out` has shape (dim).
    ///
    /// # Panics
    /// If the vocabulary lacks the token or `out` has another length.
    pub fn head_row(&self, token: TokenId, out: &mut [f32]) {
        self.head().row(token as usize, out);
    }

    /// The hidden state with which `token` enters the first layer. `out` has shape (dim).
    ///
    /// # Panics
    /// As [`CpuModel::head_row`].
    pub fn embedding_row(&self, token: TokenId, out: &mut [f32]) {
        self.embedding().row(token as usize, out);
        out.iter_mut().for_each(|x| *x *= self.config().embedding_scale);
    }

    /// The rotary angles of positions `0..positions`.
    pub fn rotations(&self, positions: usize) -> Rotations {
        let mut rope = self.spec().rope().clone();
        rope.set_positions(0..positions);
        let rows = rope.rows();
        Rotations { cos: rows.cos.to_vec(), sin: rows.sin.to_vec(), rot: rows.rot, style: rows.style }
    }
}
