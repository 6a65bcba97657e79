//! The table of an exit head's tensors: those of its one layer, and its own.

use crate::arch::tensor::{LayerForm, LayerTensor, Presence, TensorShape};

/// A tensor of an exit head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitHeadTensor {
    /// Joins the exit's state and the features. Shape: (dim, dim + features * dim).
    Fuse,
    /// The norm of the exit's state. Shape: (dim).
    ExitNorm,
    /// The norms of the features. Shape: (features * dim).
    FeatureNorm,
    /// Joins the exit's state and the head's own state before. Shape: (dim, 2 dim).
    GuessFuse,
    /// The norm of the head's own state. Shape: (dim).
    GuessNorm,
    /// A tensor of its layer.
    Layer(LayerTensor),
    /// The norm before its rows of the model's head. Shape: (dim).
    OutputNorm,
}

/// The facts that decide which tensors an exit head has and which shapes they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitHeadForm {
    /// The form of its layer.
    pub layer: LayerForm,
    /// Number of its features; 0: it reads the exit only and has nothing that joins.
    pub features: usize,
}

impl ExitHeadTensor {
    /// Every tensor, in the order in which they are loaded and in which training lays them out.
    pub fn all() -> impl Iterator<Item = ExitHeadTensor> {
        use ExitHeadTensor as T;
        let before = [T::Fuse, T::ExitNorm, T::FeatureNorm, T::GuessFuse, T::GuessNorm];
        before.into_iter().chain(LayerTensor::all().map(T::Layer)).chain([T::OutputNorm])
    }

    /// Its name in a head's file.
    pub fn name(self) -> &'static str {
        match self {
            ExitHeadTensor::Fuse => "fuse.weight",
            ExitHeadTensor::ExitNorm => "exit_norm.weight",
            ExitHeadTensor::FeatureNorm => "feature_norm.weight",
            ExitHeadTensor::GuessFuse => "fuse_guess.weight",
            ExitHeadTensor::GuessNorm => "guess_norm.weight",
            ExitHeadTensor::Layer(tensor) => tensor.exit_head_name(),
            ExitHeadTensor::OutputNorm => "output_norm.weight",
        }
    }

    /// The shape in a head of this form.
    pub fn shape(self, form: &ExitHeadForm) -> TensorShape {
        let dim = form.layer.dim;
        match self {
            ExitHeadTensor::Fuse => TensorShape::Matrix { rows: dim, cols: (1 + form.features) * dim },
            ExitHeadTensor::GuessFuse => TensorShape::Matrix { rows: dim, cols: 2 * dim },
            ExitHeadTensor::FeatureNorm => TensorShape::Norm(form.features * dim),
            ExitHeadTensor::ExitNorm | ExitHeadTensor::GuessNorm | ExitHeadTensor::OutputNorm => TensorShape::Norm(dim),
            ExitHeadTensor::Layer(tensor) => tensor.shape(&form.layer),
        }
    }

    /// Whether a head of this form has it.
    pub fn presence(self, form: &ExitHeadForm) -> Presence {
        match self {
            ExitHeadTensor::Layer(tensor) => tensor.presence(&form.layer),
            ExitHeadTensor::OutputNorm => Presence::Needed,
            _ if form.features > 0 => Presence::Needed,
            _ => Presence::Absent,
        }
    }
}

impl From<LayerTensor> for ExitHeadTensor {
    fn from(tensor: LayerTensor) -> Self {
        ExitHeadTensor::Layer(tensor)
    }
}
