//! Why a model cannot be built from a checkpoint.

use selfspec_weights::{Checkpoint, Source, WeightsError};

/// Why a model cannot be built from a checkpoint. Each message names the file's field or tensor.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A fault with the place where it was found.
    #[error("{place}: {source}")]
    In {
        /// The file, and the byte offset of the field's value or the tensor's data where there is
        /// one.
        place: String,
        /// The fault.
        source: Box<ModelError>,
    },
    /// The file itself is at fault.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// An architecture that the forward pass has no data for.
    #[error("architecture `{found}` is not supported (supported: {supported})")]
    Architecture {
        /// The name in the file.
        found: String,
        /// The names that are supported.
        supported: String,
    },
    /// A field of the metadata is missing, or has a value that no model can have.
    #[error("{field}: {problem}")]
    Field {
        /// Key of the GGUF metadata or of config.json.
        field: String,
        /// What is wrong, with the value.
        problem: String,
    },
    /// A tensor that the architecture needs is not there.
    #[error("tensor `{0}` is missing")]
    MissingTensor(String),
    /// A tensor that the architecture has no place for, and without which the output would be
    /// wrong.
    #[error("tensor `{0}` is not supported in this architecture")]
    UnsupportedTensor(String),
    /// A tensor whose shape does not fit the metadata.
    #[error("tensor `{tensor}`: expected shape {expected:?}, got {got:?}")]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Shape that follows from the metadata, outermost first.
        expected: Vec<usize>,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A vector (norm weight, bias, rotary factors) that is not stored as F32, F16 or BF16.
    #[error("tensor `{tensor}`: a vector of type {got} is not supported (expected F32, F16 or BF16)")]
    VectorType {
        /// Name of the tensor.
        tensor: String,
        /// Type in the file.
        got: String,
    },
    /// The device does not take a tensor.
    #[error("tensor `{tensor}`: {why}")]
    Device {
        /// Name of the tensor.
        tensor: String,
        /// The device's reason.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The KV cache cannot be made.
    #[error("the KV cache: {0}")]
    Cache(String),
}

impl ModelError {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        ModelError::Field { field: field.into(), problem: problem.into() }
    }

    /// The fault with its place in the files of `checkpoint`, unless it has one already.
    pub(crate) fn located(self, checkpoint: &Checkpoint) -> Self {
        let tensor = |name: &str| checkpoint.at(name).map(|at| (at.file, Some(at.offset)));
        let field = |name: &str| match checkpoint.source() {
            Source::Gguf(metadata) => {
                let at = metadata.at(name);
                (at.file, metadata.has(name).then_some(at.offset))
            }
            Source::HuggingFace { dir, .. } => (dir.join("config.json"), None),
        };
        let (file, offset) = match &self {
            ModelError::In { .. } | ModelError::Weights(_) | ModelError::Cache(_) => return self,
            ModelError::Architecture { .. } => field("general.architecture"),
            // A vector of rotary factors is a tensor whose values make a field.
            ModelError::Field { field: name, .. } => tensor(name).unwrap_or_else(|| field(name)),
            ModelError::MissingTensor(_) => (checkpoint.path().to_path_buf(), None),
            ModelError::UnsupportedTensor(name)
            | ModelError::Shape { tensor: name, .. }
            | ModelError::VectorType { tensor: name, .. }
            | ModelError::Device { tensor: name, .. } => {
                tensor(name).unwrap_or_else(|| (checkpoint.path().to_path_buf(), None))
            }
        };
        let place = match offset {
            Some(offset) => format!("{}: at byte {offset}", file.display()),
            None => file.display().to_string(),
        };
        ModelError::In { place, source: Box::new(self) }
    }
}
