//! The file of an exit head: safetensors with a card, checked against the model that will use it.

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use selfspec_weights::TensorType;

use super::card::ExitHeadCard;
use super::error::ExitHeadError;
use super::tensors::{ExitHeadForm, ExitHeadTensor};
use crate::arch::config::ArchConfig;
use crate::arch::tensor::{LayerForm, Presence, TensorShape};
use crate::load::sink::{SinkError, StoredMatrix, StoredTensor, TensorSource, WantedTensor, WeightSink, deliver};
use crate::row::TokenId;

/// The tensor that lists the tokens of the draft vocabulary.
const DRAFT_VOCAB: &str = "draft_vocab";

/// The file of an exit head that fits a model.
pub(crate) struct ExitHeadFile<'a> {
    card: ExitHeadCard,
    form: ExitHeadForm,
    file: SafeTensors<'a>,
    vocab: Vec<TokenId>,
}

impl<'a> ExitHeadFile<'a> {
    /// Reads a head's file for the model of this configuration. `name` and `fingerprint` are those
    /// of the model at hand.
    ///
    /// # Errors
    /// The file is damaged, or is a head of another model.
    pub(crate) fn open(
        bytes: &'a [u8],
        config: &ArchConfig,
        name: &str,
        fingerprint: &str,
    ) -> Result<Self, ExitHeadError> {
        let card = ExitHeadCard::read(bytes)?;
        if card.model_fingerprint != fingerprint {
            return Err(ExitHeadError::OtherModel {
                theirs: card.model,
                their_fingerprint: card.model_fingerprint,
                ours: name.to_owned(),
                our_fingerprint: fingerprint.to_owned(),
            });
        }
        let n_layers = config.n_layers;
        if card.exit_layer >= n_layers {
            return Err(ExitHeadError::ExitLayer { exit: card.exit_layer, n_layers });
        }
        let file = SafeTensors::deserialize(bytes).map_err(|e| ExitHeadError::Format(e.to_string()))?;
        if let Some(layer) = card.features.iter().find(|l| **l > n_layers) {
            return Err(ExitHeadError::Feature { layer: *layer, n_layers });
        }
        let layer = LayerForm { ffn_dim: card.ffn_dim, ..config.layer_form() };
        let form = ExitHeadForm { layer, features: card.features.len() };
        let vocab = vocab(&file)?;
        if vocab.len() != card.vocab {
            let (can, names) = (card.vocab, vocab.len());
            let why = format!("its card: it can propose {can} tokens, and `{DRAFT_VOCAB}` names {names}");
            return Err(ExitHeadError::Card(why));
        }
        let head = ExitHeadFile { card, form, file, vocab };
        head.refuse_extra()?;
        Ok(head)
    }

    /// Refuses tensors that no head with this card has: the card and the file are of different
    /// heads.
    fn refuse_extra(&self) -> Result<(), ExitHeadError> {
        let known = |name: &str| {
            name == DRAFT_VOCAB || self.wanted().any(|w| w.presence != Presence::Absent && w.tensor.name() == name)
        };
        let extra = self.file.names().into_iter().filter(|name| !known(name)).min();
        extra.map_or(Ok(()), |name| Err(ExitHeadError::ExtraTensor(name.to_owned())))
    }

    fn wanted(&self) -> impl Iterator<Item = WantedTensor<ExitHeadTensor>> {
        let form = self.form;
        ExitHeadTensor::all().map(move |tensor| WantedTensor {
            tensor,
            shape: tensor.shape(&form),
            presence: tensor.presence(&form),
        })
    }

    /// Its card.
    pub(crate) fn card(&self) -> &ExitHeadCard {
        &self.card
    }

    /// The tokens that it can propose, as the file lists them.
    pub(crate) fn vocab(&self) -> &[TokenId] {
        &self.vocab
    }

    /// Hands each of its weights to `sink`.
    ///
    /// # Errors
    /// A tensor is missing, of another type or shape, or not finite; or the sink refuses it.
    pub(crate) fn load(&self, sink: &mut impl WeightSink<ExitHeadTensor>) -> Result<(), ExitHeadError> {
        deliver(self.wanted(), self, sink)
    }

    fn vector(&self, tensor: ExitHeadTensor, len: usize) -> Result<Vec<f32>, ExitHeadError> {
        let name = tensor.name();
        let stored = find(&self.file, name)?;
        if stored.dtype() != Dtype::F32 || stored.shape() != [len] {
            return Err(mismatch(name, format!("F32 [{len}]"), &stored));
        }
        let values: Vec<f32> =
            stored.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(ExitHeadError::NotFinite(name.to_owned())),
        }
    }

    /// A matrix: blocks of Q8_0 as bytes, or BF16.
    fn matrix(
        &self,
        tensor: ExitHeadTensor,
        shape: TensorShape,
        (rows, cols): (usize, usize),
    ) -> Result<StoredMatrix<'a>, ExitHeadError> {
        let name = tensor.name();
        let stored = find(&self.file, name)?;
        let q8 = TensorType::Q8_0;
        let blocks = [rows, cols / q8.block_len() * q8.block_bytes()];
        let halves = |b: &[u8]| [b[0], b[1]];
        let bytes = stored.data();
        let (ty, finite) = match stored.dtype() {
            Dtype::U8 if cols.is_multiple_of(q8.block_len()) && stored.shape() == blocks => {
                (q8, bytes.chunks_exact(q8.block_bytes()).all(|b| f16::from_le_bytes(halves(b)).is_finite()))
            }
            Dtype::BF16 if stored.shape() == [rows, cols] => {
                (TensorType::Bf16, bytes.chunks_exact(2).all(|b| bf16::from_le_bytes(halves(b)).is_finite()))
            }
            _ => {
                let expected = format!("BF16 {:?}, or U8 {blocks:?} (blocks of Q8_0)", [rows, cols]);
                return Err(mismatch(name, expected, &stored));
            }
        };
        match finite {
            true => Ok(StoredMatrix { shape, ty, bytes }),
            false => Err(ExitHeadError::NotFinite(name.to_owned())),
        }
    }
}

impl TensorSource<ExitHeadTensor> for ExitHeadFile<'_> {
    type Error = ExitHeadError;

    fn has(&self, tensor: ExitHeadTensor) -> Result<bool, ExitHeadError> {
        Ok(self.file.tensor(tensor.name()).is_ok())
    }

    fn read(&self, tensor: ExitHeadTensor, shape: TensorShape) -> Result<StoredTensor<'_>, ExitHeadError> {
        match shape.matrix() {
            Some(size) => self.matrix(tensor, shape, size).map(StoredTensor::Matrix),
            None => self.vector(tensor, shape.values()).map(StoredTensor::Vector),
        }
    }

    fn refused(&self, tensor: ExitHeadTensor, why: SinkError) -> ExitHeadError {
        ExitHeadError::Device { tensor: tensor.name().to_owned(), why }
    }
}

/// The tokens that the file lists.
fn vocab(file: &SafeTensors<'_>) -> Result<Vec<TokenId>, ExitHeadError> {
    let tensor = find(file, DRAFT_VOCAB)?;
    if tensor.dtype() != Dtype::I32 || tensor.shape().len() != 1 {
        return Err(mismatch(DRAFT_VOCAB, "I32 of one dimension".to_owned(), &tensor));
    }
    let ids = tensor.data().chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let token =
        |id| TokenId::try_from(id).map_err(|_| ExitHeadError::Card(format!("`{DRAFT_VOCAB}` names token {id}")));
    ids.map(token).collect()
}

fn find<'a>(file: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, ExitHeadError> {
    file.tensor(name).map_err(|_| ExitHeadError::MissingTensor(name.to_owned()))
}

fn mismatch(name: &str, expected: String, got: &TensorView<'_>) -> ExitHeadError {
    ExitHeadError::Shape { tensor: name.to_owned(), expected, got: format!("{:?} {:?}", got.dtype(), got.shape()) }
}
