//! Packs stored matrices into panels.

use selfspec_kernels::{PanelMatrix, Team, WeightFormat};
use selfspec_weights::TensorType;

use crate::load::sink::{SinkError, StoredMatrix};

/// Packs matrices with a worker team.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub(crate) team: &'a Team,
    /// Otherwise only the first row of each matrix is packed, for a check.
    pub(crate) whole: bool,
}

impl Packer<'_> {
    pub(crate) fn pack(&self, matrix: &StoredMatrix<'_>) -> Result<PanelMatrix, SinkError> {
        let StoredMatrix { shape, ty, bytes } = *matrix;
        let (rows, cols) = shape.matrix().ok_or("a vector cannot be packed")?;
        let (rows, bytes) = match self.whole {
            true => (rows, bytes),
            false => (rows.min(1), &bytes[..bytes.len() / rows.max(1)]),
        };
        Ok(PanelMatrix::pack(self.team, format(ty), rows, cols, bytes)?)
    }
}

fn format(ty: TensorType) -> WeightFormat {
    match ty {
        TensorType::F32 => WeightFormat::F32,
        TensorType::F16 => WeightFormat::F16,
        TensorType::Bf16 => WeightFormat::Bf16,
        TensorType::Q4_0 => WeightFormat::Q4_0,
        TensorType::Q4_1 => WeightFormat::Q4_1,
        TensorType::Q5_0 => WeightFormat::Q5_0,
        TensorType::Q5_1 => WeightFormat::Q5_1,
        TensorType::Q8_0 => WeightFormat::Q8_0,
        TensorType::Q2K => WeightFormat::Q2K,
        TensorType::Q3K => WeightFormat::Q3K,
        TensorType::Q4K => WeightFormat::Q4K,
        TensorType::Q5K => WeightFormat::Q5K,
        TensorType::Q6K => WeightFormat::Q6K,
    }
}
