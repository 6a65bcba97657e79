//! The tensors of a head in training: their names, their shapes, and their places in one row of floats.

use std::ops::Range;

use selfspec_kernels::dense::MatrixView;

use crate::layer::shape::Shape;

/// A tensor of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tensor {
    Fuse,
    ExitNorm,
    FeatureNorm,
    GuessFuse,
    GuessNorm,
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    PostAttentionNorm,
    FfnNorm,
    Gate,
    Up,
    Down,
    PostFfnNorm,
    OutputNorm,
}

impl Tensor {
    /// Its name in a head's file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tensor::Fuse => "fuse.weight",
            Tensor::ExitNorm => "exit_norm.weight",
            Tensor::FeatureNorm => "feature_norm.weight",
            Tensor::GuessFuse => "fuse_guess.weight",
            Tensor::GuessNorm => "guess_norm.weight",
            Tensor::AttentionNorm => "layer.attention_norm.weight",
            Tensor::Query => "layer.query.weight",
            Tensor::Key => "layer.key.weight",
            Tensor::Value => "layer.value.weight",
            Tensor::AttentionOutput => "layer.attention_output.weight",
            Tensor::QueryBias => "layer.query.bias",
            Tensor::KeyBias => "layer.key.bias",
            Tensor::ValueBias => "layer.value.bias",
            Tensor::QueryNorm => "layer.query_norm.weight",
            Tensor::KeyNorm => "layer.key_norm.weight",
            Tensor::PostAttentionNorm => "layer.post_attention_norm.weight",
            Tensor::FfnNorm => "layer.ffn_norm.weight",
            Tensor::Gate => "layer.gate.weight",
            Tensor::Up => "layer.up.weight",
            Tensor::Down => "layer.down.weight",
            Tensor::PostFfnNorm => "layer.post_ffn_norm.weight",
            Tensor::OutputNorm => "output_norm.weight",
        }
    }
}

/// A tensor and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) tensor: Tensor,
    pub(crate) rows: usize, // 1 for a vector
    pub(crate) cols: usize,
    pub(crate) place: Range<usize>,
}

impl Slot {
    /// Whether it is a matrix and not a norm or a bias.
    pub(crate) fn is_matrix(&self) -> bool {
        self.rows > 1
    }
}

/// Where each tensor of a head of some shape lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    slots: Vec<Slot>,
    len: usize,
}

impl Layout {
    pub(crate) fn new(shape: &Shape) -> Layout {
        use Tensor as T;
        let (d, f, q, kv) = (shape.dim, shape.ffn_dim, shape.q_dim(), shape.kv_dim());
        let (ffn, n, fused) = (f > 0, shape.features, shape.features > 0);
        let all = [
            (T::Fuse, d, (1 + n) * d, fused),
            (T::ExitNorm, 1, d, fused),
            (T::FeatureNorm, 1, n * d, fused),
            (T::GuessFuse, d, 2 * d, fused),
            (T::GuessNorm, 1, d, fused),
            (T::AttentionNorm, 1, d, true),
            (T::Query, q, d, true),
            (T::Key, kv, d, true),
            (T::Value, kv, d, true),
            (T::AttentionOutput, d, q, true),
            (T::QueryBias, 1, q, shape.bias.query),
            (T::KeyBias, 1, kv, shape.bias.key),
            (T::ValueBias, 1, kv, shape.bias.value),
            (T::QueryNorm, 1, shape.head_dim, shape.qk_norm),
            (T::KeyNorm, 1, shape.head_dim, shape.qk_norm),
            (T::PostAttentionNorm, 1, d, shape.sandwich),
            (T::FfnNorm, 1, d, ffn),
            (T::Gate, f, d, ffn),
            (T::Up, f, d, ffn),
            (T::Down, d, f, ffn),
            (T::PostFfnNorm, 1, d, ffn && shape.sandwich),
            (T::OutputNorm, 1, d, true),
        ];
        let mut layout = Layout { slots: Vec::new(), len: 0 };
        for (tensor, rows, cols, _) in all.into_iter().filter(|t| t.3) {
            let place = layout.len..layout.len + rows * cols;
            layout.len = place.end;
            layout.slots.push(Slot { tensor, rows, cols, place });
        }
        layout
    }

    /// A layer of a model: without what only a head has. The shape reads no features.
    pub(crate) fn of_layer(shape: &Shape) -> Layout {
        let mut layout = Layout::new(shape);
        // The norm before the head lies last.
        let own = layout.slots.pop().expect("a head has tensors");
        layout.len = own.place.start;
        layout
    }

    /// Floats in all.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Every tensor, in order.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The place of a tensor, if the head has it.
    pub(crate) fn slot(&self, tensor: Tensor) -> Option<&Slot> {
        self.slots.iter().find(|s| s.tensor == tensor)
    }

    /// The place of a tensor that the head has.
    ///
    /// # Panics
    /// If it has not.
    pub(crate) fn place(&self, tensor: Tensor) -> Range<usize> {
        self.slot(tensor).expect("asked for where the shape has it").place.clone()
    }
}

/// A matrix that rows are multiplied by. Each fuse is two of them, side by side: of the exit's state, and of what else is read.
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

    fn tensor(self) -> Tensor {
        match self {
            Matrix::FuseExit | Matrix::FuseFeatures => Tensor::Fuse,
            Matrix::GuessExit | Matrix::GuessState => Tensor::GuessFuse,
            Matrix::Query => Tensor::Query,
            Matrix::Key => Tensor::Key,
            Matrix::Value => Tensor::Value,
            Matrix::AttentionOutput => Tensor::AttentionOutput,
            Matrix::Gate => Tensor::Gate,
            Matrix::Up => Tensor::Up,
            Matrix::Down => Tensor::Down,
        }
    }

    /// Its place in the row of floats, if the head has it.
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

/// Where a matrix lies: (rows, cols), each row `stride` after the one before.
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
