//! The weights of one layer, packed.

use selfspec_kernels::PanelMatrix;

use super::pack::Packer;
use crate::arch::tensor::{LayerTensor, LayerValues};
use crate::load::sink::{SinkError, StoredTensor};

/// The weights of one layer. Shapes: see the table of [`LayerTensor`].
#[derive(Debug, Default)]
pub(crate) struct Layer {
    vectors: LayerValues<Vec<f32>>,
    matrices: LayerValues<PanelMatrix>,
    pub(crate) window: Option<usize>, // positions that it sees, its own included; None: all
}

impl Layer {
    /// Takes a tensor over.
    pub(crate) fn put(
        &mut self,
        tensor: LayerTensor,
        values: StoredTensor<'_>,
        packer: Packer<'_>,
    ) -> Result<(), SinkError> {
        match values {
            StoredTensor::Vector(values) => self.vectors.insert(tensor, values),
            StoredTensor::Matrix(matrix) => self.matrices.insert(tensor, packer.pack(&matrix)?),
        }
        Ok(())
    }

    /// A matrix that the layer has.
    pub(crate) fn matrix(&self, tensor: LayerTensor) -> &PanelMatrix {
        self.matrices.get(tensor).expect("a layer is loaded with every matrix of its form")
    }

    /// The weight of a norm that the layer has.
    pub(crate) fn norm(&self, tensor: LayerTensor) -> &[f32] {
        self.vector(tensor).expect("a layer is loaded with every norm of its form")
    }

    /// A norm or bias, if the layer has it.
    pub(crate) fn vector(&self, tensor: LayerTensor) -> Option<&[f32]> {
        self.vectors.get(tensor).map(Vec::as_slice)
    }

    /// Whether it has a feed-forward part. Every layer of a model has one.
    pub(crate) fn has_feed_forward(&self) -> bool {
        self.vectors.get(LayerTensor::FeedForwardNorm).is_some()
    }

    /// First position that a row at `pos` sees.
    pub(crate) fn first_visible(&self, pos: usize) -> usize {
        self.window.map_or(0, |window| (pos + 1).saturating_sub(window))
    }

    /// Bytes of its matrices.
    pub(crate) fn bytes(&self) -> usize {
        self.matrices.iter().map(|(_, matrix)| matrix.size_bytes()).sum()
    }

    /// Bytes of some of its matrices, as far as it has them.
    pub(crate) fn bytes_of(&self, tensors: &[LayerTensor]) -> usize {
        tensors.iter().filter_map(|tensor| self.matrices.get(*tensor)).map(PanelMatrix::size_bytes).sum()
    }

    /// Every tensor as floats.
    pub(crate) fn dense(&self) -> LayerValues<Vec<f32>> {
        let mut out = self.vectors.clone();
        self.matrices.iter().for_each(|(tensor, matrix)| out.insert(tensor, dense(matrix)));
        out
    }
}

/// The floats that a matrix stands for. Shape: (rows, cols).
fn dense(matrix: &PanelMatrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.n() * matrix.k()];
    for (i, row) in out.chunks_exact_mut(matrix.k()).enumerate() {
        matrix.row(i, row);
    }
    out
}
