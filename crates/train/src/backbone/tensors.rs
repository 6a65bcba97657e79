//! The tensors of a whole model in training: their places in one row of floats, and what the
//! model's files call them.

use std::ops::Range;

use selfspec_model::{CpuModel, ExitHeadTensor, LayerTensor, ModelTensor, TensorNames};
use selfspec_weights::{Checkpoint, TensorType};

use crate::error::TrainError;
use crate::layer::layout::Layout;
use crate::layer::shape::{Shape, biases};

/// A tensor, its place, and what it is in the model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) matrix: bool,
    pub(crate) place: Range<usize>,
    /// What it is written as: floats as they were, Q8_0 too, other blocks in F16.
    pub(crate) ty: TensorType,
}

/// Where each tensor of a model lies: the embedding, the layers, the norm before the head, and the
/// head where it is not the embedding.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(crate) shape: Shape,
    pub(crate) vocab: usize,
    /// Tensors of a layer, from the layer's first value on.
    pub(crate) layer: Layout,
    pub(crate) layers: Vec<Range<usize>>, // (layer)
    pub(crate) output_norm: Range<usize>,
    pub(crate) embedding: Range<usize>,
    pub(crate) head: Range<usize>, // the embedding's where the two are tied
    pub(crate) places: Vec<Place>,
    pub(crate) len: usize,
}

impl Tensors {
    /// The tensors of `model`, read from `checkpoint`, for spans of at most `positions` tokens.
    ///
    /// # Errors
    /// [`TrainError::Family`] for a family whose forward pass is not computed here.
    pub(crate) fn new(model: &CpuModel, checkpoint: &Checkpoint, positions: usize) -> Result<Tensors, TrainError> {
        let c = model.config();
        let refuse = |why| Err(TrainError::Family { family: c.architecture.name(), why });
        if c.local.is_some() || c.norm_offset != 0.0 {
            return refuse("local attention and norms that are stored less one");
        }
        let (dim, vocab, first) = (c.dim, model.vocab(), model.dense_layer(0));
        if (1..c.n_layers).any(|l| biases(&model.dense_layer(l)) != biases(&first)) {
            return refuse("layers of which only some have biases");
        }
        let shape = Shape::new(model, biases(&first), 0, c.ffn_dim, positions);
        let layer = Layout::of_layer(&shape);
        let names = TensorNames::of(checkpoint, c);
        let form = c.layer_form();
        let mut places = Vec::new();
        let mut at = 0;
        let mut push = |tensor: ModelTensor, matrix: bool, len: usize| {
            let name = names.place(&form, tensor).name;
            let place = at..at + len;
            at = place.end;
            let stored = checkpoint.need_tensor(&name).map_err(|e| TrainError::bad(checkpoint.path(), e))?.info.ty;
            let ty = match stored {
                TensorType::Q8_0 | TensorType::F16 | TensorType::Bf16 | TensorType::F32 => stored,
                _ => TensorType::F16,
            };
            places.push(Place { name, matrix, place: place.clone(), ty });
            Ok::<_, TrainError>(place)
        };
        let embedding = push(ModelTensor::Embedding, true, vocab * dim)?;
        let mut layers = Vec::new();
        for l in 0..c.n_layers {
            let mut from = None;
            let mut end = 0;
            for slot in layer.slots() {
                let place = push(ModelTensor::Layer(l, of_layer(slot.tensor)), slot.is_matrix(), slot.place.len())?;
                from.get_or_insert(place.start);
                end = place.end;
            }
            layers.push(from.unwrap_or(end)..end);
        }
        let output_norm = push(ModelTensor::OutputNorm, false, dim)?;
        let head = if model.tied() { embedding.clone() } else { push(ModelTensor::Head, true, vocab * dim)? };
        Ok(Tensors { shape, vocab, layer, layers, output_norm, embedding, head, places, len: at })
    }

    /// The model's own values.
    pub(crate) fn initial(&self, model: &CpuModel) -> Vec<f32> {
        let (mut values, dim) = (vec![0.0; self.len], self.shape.dim);
        for (token, row) in values[self.embedding.clone()].chunks_exact_mut(dim).enumerate() {
            model.embedding_row(token as u32, row);
        }
        for (l, place) in self.layers.iter().enumerate() {
            let layer = model.dense_layer(l);
            let to = &mut values[place.clone()];
            for slot in self.layer.slots() {
                to[slot.place.clone()]
                    .copy_from_slice(layer.get(of_layer(slot.tensor)).expect("the shape has what every layer has"));
            }
        }
        values[self.output_norm.clone()].copy_from_slice(model.output_norm());
        if self.head != self.embedding {
            for (token, row) in values[self.head.clone()].chunks_exact_mut(dim).enumerate() {
                model.head_row(token as u32, row);
            }
        }
        values
    }
}

/// The tensor of a layer's layout.
fn of_layer(tensor: ExitHeadTensor) -> LayerTensor {
    match tensor {
        ExitHeadTensor::Layer(tensor) => tensor,
        other => unreachable!("a layer's layout has no {other:?}"),
    }
}
