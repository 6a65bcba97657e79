//! A checkpoint's tensors under the names and shapes that its configuration gives them.

use half::{bf16, f16};
use selfspec_weights::{Checkpoint, Tensor, TensorType};

use super::sink::{SinkError, StoredMatrix, StoredTensor, TensorSource, WantedTensor};
use crate::arch::config::ArchConfig;
use crate::arch::names::{TensorNames, TensorPlace};
use crate::arch::tensor::{LayerForm, LayerTensor, ModelTensor, Presence, TensorShape};
use crate::error::ModelError;

/// The tensors of a checkpoint.
pub(crate) struct CheckpointTensors<'a> {
    checkpoint: &'a Checkpoint,
    names: TensorNames,
    form: LayerForm,
    norm_offset: f32,
}

impl<'a> CheckpointTensors<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, config: &ArchConfig) -> Self {
        CheckpointTensors {
            checkpoint,
            names: TensorNames::of(checkpoint, config),
            form: config.layer_form(),
            norm_offset: config.norm_offset,
        }
    }

    /// Size of the vocabulary: the rows of the embedding, with which the configuration must agree.
    pub(crate) fn vocab(&self, config: &ArchConfig) -> Result<usize, ModelError> {
        let name = self.place(ModelTensor::Embedding).name;
        let got = self.tensor(&name)?.info.shape.clone();
        match got[..] {
            [vocab, dim] if dim == config.dim && config.vocab.is_none_or(|v| v == vocab) => Ok(vocab),
            _ => {
                let expected = vec![config.vocab.or(got.first().copied()).unwrap_or(0), config.dim];
                Err(ModelError::Shape { tensor: name, expected, got })
            }
        }
    }

    /// Checks that the checkpoint has the layers of its configuration, no more, and none with a
    /// tensor that the forward pass has no place for. Before anything is loaded, so that a wrong
    /// number of layers costs no memory.
    pub(crate) fn check_layers(&self, n_layers: usize) -> Result<(), ModelError> {
        let first = |layer| self.place(ModelTensor::Layer(layer, LayerTensor::AttentionNorm)).name;
        for layer in 0..n_layers {
            self.tensor(&first(layer))?;
            for name in self.names.unsupported(&self.form, layer) {
                self.refuse(name)?;
            }
        }
        self.refuse(first(n_layers))
    }

    fn refuse(&self, name: String) -> Result<(), ModelError> {
        match self.checkpoint.tensor(&name)? {
            Some(_) => Err(ModelError::UnsupportedTensor(name)),
            None => Ok(()),
        }
    }

    /// The divisors of the rotary frequencies, if the checkpoint has them. Shape: (rotated pair).
    pub(crate) fn rope_factors(&self, pairs: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(name) = self.names.rope_factors() else { return Ok(None) };
        if self.checkpoint.tensor(name)?.is_none() {
            return Ok(None);
        }
        let place = TensorPlace { name: name.to_owned(), slice: None };
        let factors = self.vector(&place, pairs)?;
        match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
            Some(bad) => Err(ModelError::field(name, format!("{bad} is not a positive number"))),
            None => Ok(Some(factors)),
        }
    }

    fn place(&self, tensor: ModelTensor) -> TensorPlace {
        self.names.place(&self.form, tensor)
    }

    fn tensor(&self, name: &str) -> Result<Tensor<'a>, ModelError> {
        self.checkpoint.tensor(name)?.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))
    }

    /// The type and the bytes of a place that holds `shape`.
    fn stored(&self, place: &TensorPlace, mut shape: Vec<usize>) -> Result<(TensorType, &'a [u8]), ModelError> {
        let tensor = self.tensor(&place.name)?;
        let rows = place.slice.as_ref().map(|slice| {
            shape[0] = slice.of;
            slice.rows.clone()
        });
        if tensor.info.shape != shape {
            let got = tensor.info.shape.clone();
            return Err(ModelError::Shape { tensor: place.name.clone(), expected: shape, got });
        }
        // Blocks do not cross rows, so each row is a whole number of bytes.
        let row_bytes = tensor.bytes.len() / shape[0];
        let bytes = match rows {
            Some(rows) => &tensor.bytes[rows.start * row_bytes..rows.end * row_bytes],
            None => tensor.bytes,
        };
        Ok((tensor.info.ty, bytes))
    }

    fn vector(&self, place: &TensorPlace, len: usize) -> Result<Vec<f32>, ModelError> {
        let (ty, bytes) = self.stored(place, vec![len])?;
        let halves = bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        match ty {
            TensorType::F32 => {
                Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            TensorType::F16 => Ok(halves.map(|b| f16::from_le_bytes(b).to_f32()).collect()),
            TensorType::Bf16 => Ok(halves.map(|b| bf16::from_le_bytes(b).to_f32()).collect()),
            other => Err(ModelError::VectorType { tensor: place.name.clone(), got: other.to_string() }),
        }
    }
}

impl TensorSource<ModelTensor> for CheckpointTensors<'_> {
    type Error = ModelError;

    fn has(&self, tensor: ModelTensor) -> Result<bool, ModelError> {
        Ok(self.checkpoint.tensor(&self.place(tensor).name)?.is_some())
    }

    fn read(&self, tensor: ModelTensor, shape: TensorShape) -> Result<StoredTensor<'_>, ModelError> {
        let place = self.place(tensor);
        if shape.matrix().is_some() {
            let (ty, bytes) = self.stored(&place, shape.dims())?;
            return Ok(StoredTensor::Matrix(StoredMatrix { shape, ty, bytes }));
        }
        let mut values = self.vector(&place, shape.values())?;
        if let TensorShape::Norm(_) = shape {
            values.iter_mut().for_each(|w| *w += self.norm_offset);
        }
        Ok(StoredTensor::Vector(values))
    }

    fn refused(&self, tensor: ModelTensor, why: SinkError) -> ModelError {
        ModelError::Device { tensor: self.place(tensor).name, why }
    }

    /// Gives the pages of the file back, so that resident memory stays near the size of the file.
    fn done(&self, tensor: ModelTensor, shape: TensorShape) {
        if shape.matrix().is_some() {
            self.checkpoint.release(&self.place(tensor).name);
        }
    }
}

/// The tensors of a model, in the order in which they are loaded.
pub(crate) fn model_tensors(
    config: &ArchConfig,
    vocab: usize,
    tied: bool,
) -> impl Iterator<Item = WantedTensor<ModelTensor>> {
    let form = config.layer_form();
    let whole = TensorShape::Matrix { rows: vocab, cols: config.dim };
    let needed = |tensor, shape| WantedTensor { tensor, shape, presence: Presence::Needed };
    let head = (!tied).then(|| needed(ModelTensor::Head, whole));
    let around =
        [needed(ModelTensor::Embedding, whole), needed(ModelTensor::OutputNorm, TensorShape::Norm(config.dim))];
    let of_layer = move |layer, tensor: LayerTensor| WantedTensor {
        tensor: ModelTensor::Layer(layer, tensor),
        shape: tensor.shape(&form),
        presence: tensor.presence(&form),
    };
    let layers = (0..config.n_layers).flat_map(move |layer| LayerTensor::all().map(move |t| of_layer(layer, t)));
    head.into_iter().chain(around).chain(layers)
}
