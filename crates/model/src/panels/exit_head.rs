//! An exit head on the CPU: a small trained layer on a shallow layer of a frozen model.
//!
//! It predicts the token that the whole model will choose. It reads the hidden state after the
//! first layers (or the embedding) and *features*: hidden states of the position before, which the
//! last verification computed anyway (compare EAGLE-3, Li et al. 2025, and LayerSkip, Elhoushi et
//! al. 2024). At drafted positions, where the model has not run, the head's own state stands for
//! them. It does not change the model.

use std::collections::BTreeMap;

use selfspec_kernels::{PanelMatrix, Team};

use super::draft_vocab::DraftVocab;
use super::layer::Layer;
use super::model::CpuModel;
use super::pack::Packer;
use crate::exit::card::ExitHeadCard;
use crate::exit::error::ExitHeadError;
use crate::exit::file::ExitHeadFile;
use crate::exit::tensors::ExitHeadTensor;
use crate::load::sink::{SinkError, StoredTensor, WeightSink};
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

/// The weights that join the exit's state and the features to one input.
#[derive(Debug)]
pub(crate) struct Fuse {
    pub(crate) exit_norm: Vec<f32>,              // (dim)
    pub(crate) features: Vec<(usize, Vec<f32>)>, // (feature): layers of the model that it has passed, and its norm (dim)
    pub(crate) weight: PanelMatrix, // (dim, dim + features * dim): of the exit's state, then of the features
    pub(crate) guess_norm: Vec<f32>, // (dim)
    pub(crate) guess_weight: PanelMatrix, // (dim, 2 dim): of the exit's state, then of the head's own state before
}

impl ExitHead {
    /// Reads a head's file for `model`. `name` and `fingerprint` are those of the model at hand
    /// (see `Checkpoint::fingerprint`). It must be the model that the head was trained for.
    ///
    /// # Errors
    /// The file is damaged, or is a head of another model.
    pub fn read(
        bytes: &[u8],
        model: &CpuModel,
        name: &str,
        fingerprint: &str,
        team: &Team,
    ) -> Result<Self, ExitHeadError> {
        let file = ExitHeadFile::open(bytes, model.config(), name, fingerprint)?;
        let mut panels = HeadPanels::new(Packer { team, whole: true });
        file.load(&mut panels)?;
        let card = file.card().clone();
        Ok(ExitHead {
            exit: card.exit_layer,
            fuse: (!card.features.is_empty()).then(|| panels.fuse(&card.features, model.config().dim)),
            output_norm: panels.vector(ExitHeadTensor::OutputNorm),
            layer: panels.layer,
            vocab: DraftVocab::new(model, file.vocab().to_vec(), team)?,
            card,
        })
    }

    /// Its card: the model that it is for, and how it was made.
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

    /// The numbers of layers after which the model's hidden states are read: the exit, then the
    /// features.
    pub(crate) fn taps(&self) -> impl Iterator<Item = usize> {
        let features = self.fuse.iter().flat_map(|fuse| &fuse.features);
        std::iter::once(self.exit).chain(features.map(|(layers, _)| *layers))
    }

    pub(crate) fn info(&self, n_layers: usize) -> ExitHeadInfo {
        let plan = LayerPlan::exit(n_layers, self.exit).unwrap_or_else(|_| LayerPlan::none(n_layers));
        ExitHeadInfo { plan, vocab: self.vocab.ids.clone(), acceptance: self.card.mean_acceptance() }
    }
}

impl Fuse {
    /// Bytes of its matrices.
    pub(crate) fn bytes(&self) -> usize {
        self.weight.size_bytes() + self.guess_weight.size_bytes()
    }
}

/// Packs a head's weights as they are loaded.
struct HeadPanels<'a> {
    packer: Packer<'a>,
    layer: Layer,
    vectors: BTreeMap<ExitHeadTensor, Vec<f32>>,
    matrices: BTreeMap<ExitHeadTensor, PanelMatrix>,
}

impl<'a> HeadPanels<'a> {
    fn new(packer: Packer<'a>) -> Self {
        HeadPanels { packer, layer: Layer::default(), vectors: BTreeMap::new(), matrices: BTreeMap::new() }
    }

    fn vector(&mut self, tensor: ExitHeadTensor) -> Vec<f32> {
        self.vectors.remove(&tensor).expect("a head is loaded with every vector of its form")
    }

    fn matrix(&mut self, tensor: ExitHeadTensor) -> PanelMatrix {
        self.matrices.remove(&tensor).expect("a head is loaded with every matrix of its form")
    }

    fn fuse(&mut self, features: &[usize], dim: usize) -> Fuse {
        let norms = self.vector(ExitHeadTensor::FeatureNorm);
        Fuse {
            exit_norm: self.vector(ExitHeadTensor::ExitNorm),
            features: features.iter().copied().zip(norms.chunks_exact(dim).map(<[f32]>::to_vec)).collect(),
            weight: self.matrix(ExitHeadTensor::Fuse),
            guess_norm: self.vector(ExitHeadTensor::GuessNorm),
            guess_weight: self.matrix(ExitHeadTensor::GuessFuse),
        }
    }
}

impl WeightSink<ExitHeadTensor> for HeadPanels<'_> {
    fn put(&mut self, tensor: ExitHeadTensor, values: StoredTensor<'_>) -> Result<(), SinkError> {
        match (tensor, values) {
            (ExitHeadTensor::Layer(tensor), values) => self.layer.put(tensor, values, self.packer)?,
            (tensor, StoredTensor::Vector(values)) => drop(self.vectors.insert(tensor, values)),
            (tensor, StoredTensor::Matrix(matrix)) => {
                self.matrices.insert(tensor, self.packer.pack(&matrix)?);
            }
        }
        Ok(())
    }
}
