//! The faults of exit heads and of draft vocabularies.

use crate::load::sink::SinkError;
use crate::row::TokenId;

/// Why a draft vocabulary cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftVocabError {
    /// It has no token.
    #[error("the draft vocabulary has no token")]
    Empty,
    /// A token is named twice, or after a higher one.
    #[error("the draft vocabulary must ascend, and token {token} follows token {before}")]
    Order {
        /// The token.
        token: TokenId,
        /// The one before it.
        before: TokenId,
    },
    /// A token that the model lacks.
    #[error("the draft vocabulary names token {token}, the model has {vocab}")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Size of the model's vocabulary.
        vocab: usize,
    },
    /// The rows cannot be packed.
    #[error("the draft vocabulary's rows: {0}")]
    Rows(String),
}

/// Why an exit head cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExitHeadError {
    /// The file is no safetensors file.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// The file has no card, or one that cannot be read.
    #[error("{0}")]
    Card(String),
    /// The head was trained for another model.
    #[error(
        "it was trained for {theirs} (fingerprint {their_fingerprint}), and the model at hand is {ours} (fingerprint {our_fingerprint})"
    )]
    OtherModel {
        /// Name of the model that it was trained for.
        theirs: String,
        /// That model's fingerprint.
        their_fingerprint: String,
        /// Name of the model at hand.
        ours: String,
        /// Its fingerprint.
        our_fingerprint: String,
    },
    /// The exit layer that the card states is not below the model's last.
    #[error("its exit layer is {exit}, the model has {n_layers} layers")]
    ExitLayer {
        /// Layers below the head.
        exit: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The card names a feature that the model lacks.
    #[error("it reads the state after {layer} layers, the model has {n_layers}")]
    Feature {
        /// Layers that the state has passed.
        layer: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// A tensor is not there.
    #[error("tensor `{0}` is missing")]
    MissingTensor(String),
    /// A head with this card has no such tensor.
    #[error("tensor `{0}`: its card tells of none")]
    ExtraTensor(String),
    /// A tensor has another shape than model and card ask for.
    #[error("tensor `{tensor}`: expected {expected}, got {got}")]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Type and shape that follow from model and card.
        expected: String,
        /// Type and shape in the file.
        got: String,
    },
    /// A tensor holds a number that is not finite.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
    /// The device does not take a tensor.
    #[error("tensor `{tensor}`: {why}")]
    Device {
        /// Name of the tensor.
        tensor: String,
        /// The device's reason.
        why: SinkError,
    },
    /// The draft vocabulary is at fault.
    #[error(transparent)]
    Vocab(#[from] DraftVocabError),
}
