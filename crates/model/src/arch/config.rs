//! An architecture as data: everything by which the supported models differ in the one forward
//! pass.
//!
//! Every value is checked here or by the readers, so that the forward pass can rely on it.

use selfspec_kernels::{GateActivation, RopeStyle};

use super::checks::MAX_SIZE;
use super::family::Architecture;
use super::tensor::LayerForm;
use crate::error::ModelError;

/// How the rotary frequencies are stretched for long contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all (a `rope_freqs.weight` tensor may still divide each frequency).
    None,
    /// Every frequency divided by the factor.
    Linear {
        /// The divisor, positive.
        factor: f32,
    },
    /// Llama 3's: long wavelengths divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// The divisor of the longest wavelengths.
        factor: f32,
        /// Wavelengths longer than `original_context / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths shorter than `original_context / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// Context length of the first training, in positions.
        original_context: f32,
    },
}

/// Layers that see a window only (Gemma 3).
#[derive(Debug, Clone, PartialEq)]
pub struct LocalAttention {
    /// Number of positions that a local layer sees, its own included.
    pub window: usize,
    /// Base of the rotary frequencies in local layers; they are never scaled.
    pub rope_base: f32,
    /// Whether each layer is local. Shape: (layer).
    pub layers: Vec<bool>,
}

/// Everything by which one model differs from another in the forward pass, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchConfig {
    /// The family.
    pub architecture: Architecture,
    /// Number of layers N.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward part.
    pub ffn_dim: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values in a head; even.
    pub head_dim: usize,
    /// Size of the vocabulary, if the metadata states it; the embedding must agree.
    pub vocab: Option<usize>,
    /// Longest context of the training, in positions.
    pub context: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Added to every norm weight (1 in Gemma's own checkpoints; 0 in GGUF files, which have it
    /// added already).
    pub norm_offset: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// How the frequencies are stretched.
    pub rope_scaling: RopeScaling,
    /// Values of a head that are rotated; even, at most `head_dim`.
    pub rope_dims: usize,
    /// Which values form a rotated pair.
    pub rope_style: RopeStyle,
    /// Local layers, if the family has them.
    pub local: Option<LocalAttention>,
    /// Norms on each head of q and k.
    pub qk_norm: bool,
    /// Biases on q, k and v must be there. Otherwise they are used where they are there.
    pub qkv_bias: bool,
    /// Whether the head is the embedding; `None`: it is if the checkpoint has no head.
    pub tied: Option<bool>,
    /// Norms after attention and after the feed-forward part, before they are added to the residual
    /// stream.
    pub sandwich_norms: bool,
    /// Factor on the embedding.
    pub embedding_scale: f32,
    /// Factor on the attention scores.
    pub attention_scale: f32,
    /// Activation of the gated feed-forward part.
    pub gate: GateActivation,
}

impl ArchConfig {
    /// Checks the values against each other. The fields are the file's, for messages.
    pub(crate) fn checked(self, heads_field: &str, kv_field: &str, rope_field: &str) -> Result<Self, ModelError> {
        if !self.heads.is_multiple_of(self.kv_heads) {
            let problem = format!("{} key/value heads do not divide {} heads", self.kv_heads, self.heads);
            return Err(ModelError::field(kv_field, problem));
        }
        if self.heads.saturating_mul(self.head_dim) > MAX_SIZE {
            let problem = format!("{} heads of {} values are too many", self.heads, self.head_dim);
            return Err(ModelError::field(heads_field, problem));
        }
        if !self.head_dim.is_multiple_of(2) || !self.rope_dims.is_multiple_of(2) || self.rope_dims > self.head_dim {
            let problem =
                format!("{} rotated values of {} in a head: not a set of pairs", self.rope_dims, self.head_dim);
            return Err(ModelError::field(rope_field, problem));
        }
        Ok(self)
    }

    /// The facts that decide which tensors a layer has, and their shapes.
    pub fn layer_form(&self) -> LayerForm {
        LayerForm {
            dim: self.dim,
            ffn_dim: self.ffn_dim,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qkv_bias: self.qkv_bias,
            qk_norm: self.qk_norm,
            sandwich_norms: self.sandwich_norms,
        }
    }

    /// First position that a row at `pos` sees in `layer`.
    ///
    /// # Panics
    /// If a model with local layers has no layer of this number.
    pub fn first_visible(&self, layer: usize, pos: usize) -> usize {
        self.window(layer).map_or(0, |window| (pos + 1).saturating_sub(window))
    }

    /// Number of positions that rows of `layer` see, their own included. `None`: all.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        self.local.as_ref().filter(|local| local.layers[layer]).map(|local| local.window)
    }
}
