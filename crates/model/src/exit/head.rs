//! An exit head in memory: a small trained layer on a shallow layer of a frozen model.
//!
//! It predicts what the whole model will, from the hidden state after the first layers (or the embedding) and from *features*: hidden states of the
//! position before, which the last verification computed anyway (compare EAGLE-3, Li et al. 2025, and LayerSkip, Elhoushi et al. 2024). At
//! drafted positions, where the model has not run, the head's own state stands for them. The model itself is not touched by it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use selfspec_kernels::{Format, PanelMatrix, Team};

use crate::exit::card::ExitHeadCard;
use crate::exit::vocab::{DraftVocab, DraftVocabError};
use crate::model::{FeedForward, Layer, Model};
use crate::plan::LayerPlan;
use crate::row::ExitHeadInfo;

/// An exit head, packed for the kernels. Shared by every backend that runs its model.
#[derive(Debug)]
pub struct ExitHead {
    card: ExitHeadCard,
    pub(crate) exit: usize, // layers of the model below it
    pub(crate) fuse: Option<Fuse>,
    pub(crate) layer: Layer,
    pub(crate) output_norm: Vec<f32>, // (dim)
    pub(crate) vocab: DraftVocab,
}

/// What joins the exit's state and the features to one input.
#[derive(Debug)]
pub(crate) struct Fuse {
    pub(crate) exit_norm: Vec<f32>,              // (dim)
    pub(crate) features: Vec<(usize, Vec<f32>)>, // (feature): layers of the model that it has passed, and its norm (dim)
    pub(crate) weight: PanelMatrix, // (dim, dim + features * dim): of the exit's state, then of the features
    pub(crate) guess_norm: Vec<f32>, // (dim)
    pub(crate) guess_weight: PanelMatrix, // (dim, 2 dim): of the exit's state, then of the head's own state before
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
    /// The card and the model contradict each other.
    #[error("its exit layer is {exit}, the model has {n_layers} layers")]
    ExitLayer {
        /// Layers below the head.
        exit: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The card and the model contradict each other.
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
    /// The card tells of no such tensor.
    #[error("tensor `{0}`: its card tells of none")]
    ExtraTensor(String),
    /// A tensor has another shape than model and card ask for.
    #[error("tensor `{tensor}`: expected {expected}, got {got}")]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A tensor holds a number that is not finite.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
    /// The draft vocabulary is at fault.
    #[error(transparent)]
    Vocab(#[from] DraftVocabError),
}

impl ExitHead {
    /// Reads a head's file for `model`. `name` and `fingerprint` are those of the model at hand (see
    /// `Checkpoint::fingerprint`), which must be the one that the head was trained for.
    ///
    /// # Errors
    /// The file is damaged, or is a head of another model.
    pub fn read(
        bytes: &[u8],
        model: &Model,
        name: &str,
        fingerprint: &str,
        team: &Team,
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
        let c = model.config();
        if card.exit_layer >= c.n_layers {
            return Err(ExitHeadError::ExitLayer { exit: card.exit_layer, n_layers: c.n_layers });
        }
        let file = SafeTensors::deserialize(bytes).map_err(|e| ExitHeadError::Format(e.to_string()))?;
        let tensors = Tensors { file, team, read: RefCell::default() };
        if let Some(layer) = card.features.iter().find(|l| **l > c.n_layers) {
            return Err(ExitHeadError::Feature { layer: *layer, n_layers: c.n_layers });
        }
        let fuse = (!card.features.is_empty()).then(|| {
            let n = card.features.len();
            let norms = tensors.vector("feature_norm.weight", n * c.dim)?;
            let norms = norms.chunks_exact(c.dim).map(<[f32]>::to_vec);
            Ok::<_, ExitHeadError>(Fuse {
                exit_norm: tensors.vector("exit_norm.weight", c.dim)?,
                features: card.features.iter().copied().zip(norms).collect(),
                weight: tensors.matrix("fuse.weight", c.dim, (1 + n) * c.dim)?,
                guess_norm: tensors.vector("guess_norm.weight", c.dim)?,
                guess_weight: tensors.matrix("fuse_guess.weight", c.dim, 2 * c.dim)?,
            })
        });
        let ids = tensors.ids("draft_vocab")?;
        if ids.len() != card.vocab {
            let why = format!("its card: it can propose {} tokens, and `draft_vocab` names {}", card.vocab, ids.len());
            return Err(ExitHeadError::Card(why));
        }
        let head = ExitHead {
            exit: card.exit_layer,
            fuse: fuse.transpose()?,
            layer: tensors.layer(model, card.ffn_dim)?,
            output_norm: tensors.vector("output_norm.weight", c.dim)?,
            vocab: DraftVocab::new(model, ids, team)?,
            card,
        };
        tensors.finish()?;
        Ok(head)
    }

    /// What it is, and how it was made.
    pub fn card(&self) -> &ExitHeadCard {
        &self.card
    }

    /// The tokens that it can propose.
    pub fn vocab(&self) -> &DraftVocab {
        &self.vocab
    }

    /// The weight of its norm before the head. Shape: (dim).
    pub fn output_norm(&self) -> &[f32] {
        &self.output_norm
    }

    /// Memory of its weights, the copied rows of the model's head included, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.layer.bytes() + self.vocab.size_bytes() + self.fuse.as_ref().map_or(0, Fuse::bytes)
    }

    /// The numbers of layers after which the model's hidden states are read: the exit, then the features.
    pub(crate) fn taps(&self) -> impl Iterator<Item = usize> {
        let features = self.fuse.iter().flat_map(|fuse| &fuse.features);
        std::iter::once(self.exit).chain(features.map(|(layers, _)| *layers))
    }

    pub(crate) fn info(&self, n_layers: usize) -> ExitHeadInfo {
        let plan = LayerPlan::exit(n_layers, self.exit).unwrap_or_else(|_| LayerPlan::none(n_layers));
        ExitHeadInfo { plan, vocab: self.vocab.ids.clone(), acceptance: self.card.mean_acceptance() }
    }
}

/// The tensors of a head's file.
struct Tensors<'a> {
    file: SafeTensors<'a>,
    team: &'a Team,
    read: RefCell<BTreeSet<String>>,
}

impl Tensors<'_> {
    fn layer(&self, model: &Model, ffn_dim: usize) -> Result<Layer, ExitHeadError> {
        let c = model.config();
        let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let vector = |name: &str, len| self.vector(&format!("layer.{name}"), len);
        let matrix = |name: &str, n, k| self.matrix(&format!("layer.{name}.weight"), n, k);
        let some = |wanted: bool, name: &str, len| wanted.then(|| vector(name, len)).transpose();
        let bias = |name: &str, len| {
            let name = format!("{name}.bias");
            some(c.qkv_bias || self.file.tensor(&format!("layer.{name}")).is_ok(), &name, len)
        };
        let ffn = (ffn_dim > 0).then(|| {
            Ok::<_, ExitHeadError>(FeedForward {
                norm: vector("ffn_norm.weight", c.dim)?,
                gate: matrix("gate", ffn_dim, c.dim)?,
                up: matrix("up", ffn_dim, c.dim)?,
                down: matrix("down", c.dim, ffn_dim)?,
                post_norm: some(c.sandwich_norms, "post_ffn_norm.weight", c.dim)?,
            })
        });
        Ok(Layer {
            attention_norm: vector("attention_norm.weight", c.dim)?,
            query: matrix("query", q_dim, c.dim)?,
            key: matrix("key", kv_dim, c.dim)?,
            value: matrix("value", kv_dim, c.dim)?,
            attention_output: matrix("attention_output", c.dim, q_dim)?,
            query_bias: bias("query", q_dim)?,
            key_bias: bias("key", kv_dim)?,
            value_bias: bias("value", kv_dim)?,
            query_norm: some(c.qk_norm, "query_norm.weight", c.head_dim)?,
            key_norm: some(c.qk_norm, "key_norm.weight", c.head_dim)?,
            post_attention_norm: some(c.sandwich_norms, "post_attention_norm.weight", c.dim)?,
            ffn: ffn.transpose()?,
            window: None,
        })
    }

    fn get(&self, name: &str) -> Result<safetensors::tensor::TensorView<'_>, ExitHeadError> {
        self.read.borrow_mut().insert(name.to_owned());
        self.file.tensor(name).map_err(|_| ExitHeadError::MissingTensor(name.to_owned()))
    }

    /// Refuses tensors that were not read: the card and the file are of different heads then.
    fn finish(&self) -> Result<(), ExitHeadError> {
        let read = self.read.borrow();
        let extra = self.file.names().into_iter().filter(|name| !read.contains(*name)).min();
        extra.map_or(Ok(()), |name| Err(ExitHeadError::ExtraTensor(name.to_owned())))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ExitHeadError> {
        let tensor = self.get(name)?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != [len] {
            return Err(mismatch(name, format!("F32 [{len}]"), &tensor));
        }
        let values: Vec<f32> =
            tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(ExitHeadError::NotFinite(name.to_owned())),
        }
    }

    /// A matrix of (n, k): blocks of Q8_0 as bytes, or BF16.
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<PanelMatrix, ExitHeadError> {
        let tensor = self.get(name)?;
        let q8 = Format::Q8_0;
        let blocks = [n, k / q8.block_len() * q8.block_bytes()];
        let halves = |b: &[u8]| [b[0], b[1]];
        let (format, finite) = match tensor.dtype() {
            Dtype::U8 if k.is_multiple_of(q8.block_len()) && tensor.shape() == blocks => {
                let mut scales = tensor.data().chunks_exact(q8.block_bytes());
                (q8, scales.all(|b| f16::from_le_bytes(halves(b)).is_finite()))
            }
            Dtype::BF16 if tensor.shape() == [n, k] => {
                (Format::Bf16, tensor.data().chunks_exact(2).all(|b| bf16::from_le_bytes(halves(b)).is_finite()))
            }
            _ => return Err(mismatch(name, format!("BF16 {:?}, or U8 {blocks:?} (blocks of Q8_0)", [n, k]), &tensor)),
        };
        if !finite {
            return Err(ExitHeadError::NotFinite(name.to_owned()));
        }
        PanelMatrix::pack(self.team, format, n, k, tensor.data()).map_err(|e| ExitHeadError::Format(e.to_string()))
    }

    fn ids(&self, name: &str) -> Result<Vec<u32>, ExitHeadError> {
        let tensor = self.get(name)?;
        if tensor.dtype() != Dtype::I32 || tensor.shape().len() != 1 {
            return Err(mismatch(name, "I32 of one dimension".to_owned(), &tensor));
        }
        let ids = tensor.data().chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        ids.map(|id| u32::try_from(id).map_err(|_| ExitHeadError::Card(format!("`{name}` names token {id}")))).collect()
    }
}

fn mismatch(name: &str, expected: String, got: &safetensors::tensor::TensorView<'_>) -> ExitHeadError {
    ExitHeadError::Shape { tensor: name.to_owned(), expected, got: format!("{:?} {:?}", got.dtype(), got.shape()) }
}
