//! [`HeadPlan`]: the design of a head, and its initial values.

use selfspec_model::{CpuModel, ExitHeadTensor, LayerTensor, LayerValues};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::layer::layout::Layout;
use crate::layer::shape::{Shape, biases};
use crate::math::random::Random;

/// The design of a head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadPlan {
    /// Layers of the model below the head. 0: the head reads the embedding.
    pub exit_layer: usize,
    /// The head also reads the hidden states of the previous position after these numbers of
    /// layers. Empty: it reads the exit only.
    pub features: Vec<usize>,
    /// Width of the feed-forward part. 0: the head has attention only.
    pub ffn_dim: usize,
}

/// Standard deviation of random values.
const STD: f32 = 0.003;

impl HeadPlan {
    /// The numbers of layers after which training needs the model's hidden states, ascending: the
    /// exit, unless that is the embedding, the features, and the last layer.
    pub fn layers(&self, n_layers: usize) -> Vec<usize> {
        let mut layers = self.features.clone();
        layers.extend([n_layers, self.exit_layer]);
        layers.retain(|l| *l > 0);
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    /// # Errors
    /// The model has fewer layers, or the head is absurdly wide.
    pub(crate) fn check(&self, model: &CpuModel) -> Result<(), TrainError> {
        let c = model.config();
        if self.exit_layer >= c.n_layers {
            let why = format!("{} layers below the head, of a model of {}", self.exit_layer, c.n_layers);
            return Err(TrainError::Option { field: "exit_layer", why });
        }
        if let Some(layer) = self.features.iter().find(|l| **l > c.n_layers) {
            let why = format!("a state after {layer} layers, of a model of {}", c.n_layers);
            return Err(TrainError::Option { field: "features", why });
        }
        const WIDEST: usize = 1 << 20;
        if self.ffn_dim > WIDEST {
            let why = format!("{} is above {WIDEST}", self.ffn_dim);
            return Err(TrainError::Option { field: "ffn_dim", why });
        }
        Ok(())
    }

    /// The head's shape on this model, for sequences of at most `positions` tokens.
    pub(crate) fn shape(&self, model: &CpuModel, positions: usize) -> Shape {
        let layer = model.dense_layer(model.config().n_layers - 1);
        Shape::new(model, biases(&layer), self.features.len(), self.ffn_dim, positions)
    }

    /// The initial values: the model's last layer and final norm, and a fuse that passes the
    /// deepest feature, or the head's own state, at about its size in the model, its norm times
    /// `gain`.
    pub(crate) fn initial(&self, model: &CpuModel, shape: &Shape, seed: u64, gain: f32) -> Vec<f32> {
        let (dim, layout) = (shape.dim, Layout::new(shape));
        let last = model.dense_layer(model.config().n_layers - 1);
        let neurons = strongest_neurons(&last, dim, shape.ffn_dim);
        let mut values = vec![0.0; layout.len()];
        for slot in layout.slots() {
            let to = &mut values[slot.place.clone()];
            let mut random = Random::new(seed, slot.tensor.name());
            let from: Vec<f32> = match slot.tensor {
                ExitHeadTensor::Fuse => {
                    let deepest = (0..self.features.len()).max_by_key(|i| self.features[*i]).unwrap_or(0);
                    identity_fuse(&mut random, dim, slot.cols, 1 + deepest, gain)
                }
                ExitHeadTensor::GuessFuse => identity_fuse(&mut random, dim, slot.cols, 1, gain),
                ExitHeadTensor::ExitNorm | ExitHeadTensor::FeatureNorm | ExitHeadTensor::GuessNorm => {
                    vec![1.0; to.len()]
                }
                ExitHeadTensor::Layer(tensor) => {
                    let from = last.get(tensor).expect("the shape has the tensors of the layer");
                    match tensor {
                        LayerTensor::Gate | LayerTensor::Up => rows(from, dim, &neurons, &mut random),
                        LayerTensor::Down => columns(from, dim, &neurons),
                        _ => from.clone(),
                    }
                }
                ExitHeadTensor::OutputNorm => model.output_norm().to_vec(),
            };
            to.copy_from_slice(&from);
        }
        values
    }
}

/// A fuse of (dim, cols): `gain` times small random values, and `gain` times the identity in the
/// `part`-th block of `dim` columns.
fn identity_fuse(random: &mut Random, dim: usize, cols: usize, part: usize, gain: f32) -> Vec<f32> {
    let mut values = random.normals(dim * cols, gain * STD);
    for (i, row) in values.chunks_exact_mut(cols).enumerate() {
        let block = &mut row[part * dim..(part + 1) * dim];
        block.fill(0.0);
        block[i] = gain;
    }
    values
}

/// The feed-forward neurons of the layer with which a head of another width starts: those of the
/// largest weights, in their order; `None` beyond.
fn strongest_neurons(layer: &LayerValues<Vec<f32>>, dim: usize, ffn_dim: usize) -> Vec<Option<usize>> {
    let [gate, up, down] = [LayerTensor::Gate, LayerTensor::Up, LayerTensor::Down]
        .map(|tensor| layer.get(tensor).expect("every layer of a model has a feed-forward part"));
    let width = gate.len() / dim;
    let size = |row: &[f32]| row.iter().map(|x| x * x).sum::<f32>();
    let weight = |i: usize| {
        let out: f32 = (0..dim).map(|d| down[d * width + i].powi(2)).sum();
        size(&gate[i * dim..][..dim]) * size(&up[i * dim..][..dim]) * out
    };
    let mut order: Vec<(f32, usize)> = (0..width).map(|i| (weight(i), i)).collect();
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut chosen: Vec<usize> = order.iter().take(ffn_dim).map(|(_, i)| *i).collect();
    chosen.sort_unstable();
    (0..ffn_dim).map(|i| chosen.get(i).copied()).collect()
}

/// Chosen rows of a matrix of (ffn_dim, dim); small random rows for `None`.
fn rows(from: &[f32], dim: usize, neurons: &[Option<usize>], random: &mut Random) -> Vec<f32> {
    let row = |i: &Option<usize>| match i {
        Some(i) => from[i * dim..][..dim].to_vec(),
        None => random.normals(dim, STD),
    };
    neurons.iter().flat_map(row).collect()
}

/// Chosen columns of a matrix of (dim, ffn_dim); zeros for `None`.
fn columns(from: &[f32], dim: usize, neurons: &[Option<usize>]) -> Vec<f32> {
    let width = from.len() / dim;
    (0..dim).flat_map(|d| neurons.iter().map(move |i| i.map_or(0.0, |i| from[d * width + i]))).collect()
}
