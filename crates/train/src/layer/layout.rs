//! [`Layout`]: the tensors of a layer or head in training, their shapes, and their places in one
//! row of floats.

use std::ops::Range;

use selfspec_kernels::dense::MatrixView;
use selfspec_model::{ExitHeadTensor, LayerTensor};

use crate::layer::shape::Shape;

/// A tensor, its shape and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) tensor: ExitHeadTensor,
    matrix: bool,
    pub(crate) rows: usize, // 1 for a vector
    pub(crate) cols: usize,
    pub(crate) place: Range<usize>,
}

impl Slot {
    /// Whether it is a matrix and not a norm or a bias.
    pub(crate) fn is_matrix(&self) -> bool {
        self.matrix
    }
}

/// The places of all tensors of a head or layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    slots: Vec<Slot>,
    len: usize,
}

impl Layout {
    pub(crate) fn new(shape: &Shape) -> Layout {
        let form = shape.form();
        let mut layout = Layout { slots: Vec::new(), len: 0 };
        for tensor in ExitHeadTensor::all().filter(|tensor| shape.has(*tensor)) {
            let dims = tensor.shape(&form);
            let place = layout.len..layout.len + dims.values();
            layout.len = place.end;
            let matrix = dims.matrix().is_some();
            let rows = if matrix { dims.rows() } else { 1 };
            layout.slots.push(Slot { tensor, matrix, rows, cols: dims.values() / rows, place });
        }
        layout
    }

    /// The layout of a layer of a model, without the tensors of a head. The shape reads no
    /// features.
    pub(crate) fn of_layer(shape: &Shape) -> Layout {
        let mut layout = Layout::new(shape);
        // The norm before the head is last.
        let own = layout.slots.pop().expect("a head has tensors");
        layout.len = own.place.start;
        layout
    }

    /// Number of floats.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Every tensor, in order.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The place of a tensor, if the head has it.
    pub(crate) fn slot(&self, tensor: impl Into<ExitHeadTensor>) -> Option<&Slot> {
        let tensor = tensor.into();
        self.slots.iter().find(|s| s.tensor == tensor)
    }

    /// The place of a tensor that the head has.
    ///
    /// # Panics
    /// If the head lacks it.
    pub(crate) fn place(&self, tensor: impl Into<ExitHeadTensor>) -> Range<usize> {
        self.slot(tensor).expect("asked for where the shape has it").place.clone()
    }
}

/// A matrix of the products. Each fuse is two matrices side by side: one for the exit's state, one
/// for the other input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Matrix {
    FuseExit,
    FuseFeatures,
    GuessExit,
    GuessState,
    Query,
    Key,
    Value,
    AttentionOutput,
    Gate,
    Up,
    Down,
}

impl Matrix {
    /// Every matrix; its index is its number.
    pub(crate) const ALL: [Matrix; 11] = [
        Matrix::FuseExit,
        Matrix::FuseFeatures,
        Matrix::GuessExit,
        Matrix::GuessState,
        Matrix::Query,
        Matrix::Key,
        Matrix::Value,
        Matrix::AttentionOutput,
        Matrix::Gate,
        Matrix::Up,
        Matrix::Down,
    ];

    fn tensor(self) -> ExitHeadTensor {
        match self {
            Matrix::FuseExit | Matrix::FuseFeatures => ExitHeadTensor::Fuse,
            Matrix::GuessExit | Matrix::GuessState => ExitHeadTensor::GuessFuse,
            Matrix::Query => LayerTensor::Query.into(),
            Matrix::Key => LayerTensor::Key.into(),
            Matrix::Value => LayerTensor::Value.into(),
            Matrix::AttentionOutput => LayerTensor::AttentionOutput.into(),
            Matrix::Gate => LayerTensor::Gate.into(),
            Matrix::Up => LayerTensor::Up.into(),
            Matrix::Down => LayerTensor::Down.into(),
        }
    }

    /// The place of the matrix in the row of floats, if the head has it.
    pub(crate) fn at(self, layout: &Layout) -> Option<MatrixAt> {
        let slot = layout.slot(self.tensor())?;
        let (from, cols) = match self {
            Matrix::FuseExit | Matrix::GuessExit => (0, slot.rows),
            Matrix::FuseFeatures | Matrix::GuessState => (slot.rows, slot.cols - slot.rows),
            _ => (0, slot.cols),
        };
        Some(MatrixAt { from: slot.place.start + from, end: slot.place.end, rows: slot.rows, cols, stride: slot.cols })
    }
}

/// The place of a matrix: (rows, cols), each row `stride` after the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixAt {
    pub(crate) from: usize,
    pub(crate) end: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
}

impl MatrixAt {
    pub(crate) fn view(self, values: &[f32]) -> MatrixView<'_> {
        MatrixView::strided(&values[self.from..self.end], self.rows, self.cols, self.stride)
    }
}
