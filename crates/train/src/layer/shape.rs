//! [`Shape`]: the shape of a head or layer in training.

use selfspec_kernels::GateActivation;
use selfspec_model::{
    ArchConfig, CpuModel, ExitHeadForm, ExitHeadTensor, LayerForm, LayerTensor, LayerValues, Presence, Rotations,
};

/// The shape of a head or layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) dim: usize,
    pub(crate) ffn_dim: usize, // 0: attention only
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) eps: f32,
    pub(crate) gate: GateActivation,
    pub(crate) attention_scale: f32,
    pub(crate) features: usize, // hidden states of the position before that it reads; 0: none, and nothing is fused
    pub(crate) qk_norm: bool,
    pub(crate) sandwich: bool,
    pub(crate) biases: Vec<LayerTensor>,
    pub(crate) rotations: Rotations, // of the positions of the longest sequence
}

/// The biases that a layer has. Layers of one form may differ in them.
pub(crate) fn biases(layer: &LayerValues<Vec<f32>>) -> Vec<LayerTensor> {
    [LayerTensor::QueryBias, LayerTensor::KeyBias, LayerTensor::ValueBias]
        .into_iter()
        .filter(|tensor| layer.get(*tensor).is_some())
        .collect()
}

impl Shape {
    /// A head for `model`, for sequences of at most `positions` tokens.
    pub(crate) fn new(
        model: &CpuModel,
        biases: Vec<LayerTensor>,
        features: usize,
        ffn_dim: usize,
        positions: usize,
    ) -> Shape {
        let c: &ArchConfig = model.config();
        Shape {
            dim: c.dim,
            ffn_dim,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            eps: c.norm_eps,
            gate: c.gate,
            attention_scale: c.attention_scale,
            features,
            qk_norm: c.qk_norm,
            sandwich: c.sandwich_norms,
            biases,
            rotations: model.rotations(positions),
        }
    }

    /// Whether a head or layer of this shape has a tensor.
    pub(crate) fn has(&self, tensor: ExitHeadTensor) -> bool {
        match tensor.presence(&self.form()) {
            Presence::Needed => true,
            Presence::Optional => self.biases.iter().any(|bias| tensor == (*bias).into()),
            Presence::Absent => false,
        }
    }

    /// The shape as the table of tensors describes it.
    pub(crate) fn form(&self) -> ExitHeadForm {
        let layer = LayerForm {
            dim: self.dim,
            ffn_dim: self.ffn_dim,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qk_norm: self.qk_norm,
            sandwich_norms: self.sandwich,
            // `biases` lists the existing biases, so the form names none.
            ..LayerForm::default()
        };
        ExitHeadForm { layer, features: self.features }
    }

    /// Values of all query heads of a row.
    pub(crate) fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values of all key heads of a row.
    pub(crate) fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Query heads that share a key head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}
