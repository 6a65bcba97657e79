//! The shape of a head: by what one head differs from another in training.

use selfspec_kernels::GateActivation;
use selfspec_model::{ArchConfig, Model, Rotations};

/// The shape of a head.
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
    pub(crate) bias: Bias,
    pub(crate) rotations: Rotations, // of the positions of the longest sequence
}

/// Which biases the layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bias {
    pub(crate) query: bool,
    pub(crate) key: bool,
    pub(crate) value: bool,
}

impl Shape {
    /// A head for `model`, for sequences of at most `positions` tokens.
    pub(crate) fn new(model: &Model, bias: Bias, features: usize, ffn_dim: usize, positions: usize) -> Shape {
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
            bias,
            rotations: model.rotations(positions),
        }
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
