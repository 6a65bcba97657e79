//! The table of architectures: everything by which one family differs from another, as data.
//!
//! A new family is one entry here. The readers of both kinds of files and the names of tensors ask
//! the entry, never which family it is.

use std::fmt;

use selfspec_kernels::{GateActivation, RopeStyle};

use super::tensor::LayerTensor;
use crate::error::ModelError;

/// A tensor of a file that holds the rows of several tensors, one after the other.
#[derive(Debug)]
pub(crate) struct FusedTensor {
    pub(crate) gguf: &'static str,            // name in a GGUF file, after `blk.N.`
    pub(crate) folder: &'static str,          // name in a folder, after `layers.N.`
    pub(crate) parts: &'static [LayerTensor], // in the order of their rows
}

/// Layers that see a window only, except every `global_every`-th.
#[derive(Debug)]
pub(crate) struct LocalLayers {
    pub(crate) global_every: usize,
    pub(crate) rope_base: f32, // where the file does not state it
}

/// One architecture.
#[derive(Debug)]
pub(crate) struct Family {
    /// `general.architecture` of GGUF files.
    pub(crate) name: &'static str,
    /// `model_type` of folders.
    pub(crate) folder_types: &'static [&'static str],
    /// Which values form a rotated pair in GGUF files; in folders they are always halves.
    pub(crate) gguf_rope: RopeStyle,
    /// Base of the rotary frequencies of a folder that does not state it.
    pub(crate) folder_rope_base: f32,
    /// Added to norm weights of folders; GGUF files have it added already.
    pub(crate) folder_norm_offset: f32,
    pub(crate) qkv_bias: bool,
    pub(crate) qk_norm: bool,
    pub(crate) sandwich_norms: bool,
    /// Whether the embedding is multiplied by the square root of its width.
    pub(crate) scaled_embedding: bool,
    pub(crate) gate: GateActivation,
    /// The field of `config.json` that names the activation.
    pub(crate) folder_gate: &'static str,
    pub(crate) local: Option<LocalLayers>,
    /// The field of `config.json` whose inverse root scales attention scores, not that of
    /// `head_dim`.
    pub(crate) folder_score_field: Option<&'static str>,
    /// Number of layers of the one size whose GGUF scores are scaled by `dim / heads`.
    pub(crate) gguf_wide_score_layers: Option<usize>,
    /// Names in folders, after `layers.N.`, that differ from the table's.
    pub(crate) folder_names: &'static [(LayerTensor, &'static str)],
    /// Tensors that the files keep in one.
    pub(crate) fused: &'static [FusedTensor],
}

pub(crate) const LLAMA: Family = Family {
    name: "llama",
    folder_types: &["llama"],
    // The converter permutes q and k so that pairs are neighbours.
    gguf_rope: RopeStyle::Interleaved,
    folder_rope_base: 10_000.0,
    folder_norm_offset: 0.0,
    qkv_bias: false,
    qk_norm: false,
    sandwich_norms: false,
    scaled_embedding: false,
    gate: GateActivation::Silu,
    folder_gate: "hidden_act",
    local: None,
    folder_score_field: None,
    gguf_wide_score_layers: None,
    folder_names: &[],
    fused: &[],
};

const QWEN2: Family =
    Family { name: "qwen2", folder_types: &["qwen2"], gguf_rope: RopeStyle::Halves, qkv_bias: true, ..LLAMA };

const QWEN3: Family =
    Family { name: "qwen3", folder_types: &["qwen3"], gguf_rope: RopeStyle::Halves, qk_norm: true, ..LLAMA };

/// Text models of the Gemma 3 technical report; local layers: section 2.1.
const GEMMA3: Family = Family {
    name: "gemma3",
    folder_types: &["gemma3_text", "gemma3"],
    gguf_rope: RopeStyle::Halves,
    folder_rope_base: 1_000_000.0,
    folder_norm_offset: 1.0,
    qk_norm: true,
    sandwich_norms: true,
    scaled_embedding: true,
    gate: GateActivation::GeluTanh,
    folder_gate: "hidden_activation",
    local: Some(LocalLayers { global_every: 6, rope_base: 10_000.0 }),
    folder_score_field: Some("query_pre_attn_scalar"),
    // Gemma 3 27B.
    gguf_wide_score_layers: Some(62),
    folder_names: &[(LayerTensor::FeedForwardNorm, "pre_feedforward_layernorm.weight")],
    ..LLAMA
};

impl LocalLayers {
    /// Whether each layer is local, where every `global_every`-th is not. Shape: (layer).
    pub(crate) fn pattern(n_layers: usize, global_every: usize) -> Vec<bool> {
        (0..n_layers).map(|l| (l + 1) % global_every != 0).collect()
    }
}

impl Family {
    /// Factor on an embedding of this width.
    pub(crate) fn embedding_scale(&self, dim: usize) -> f32 {
        if self.scaled_embedding { (dim as f32).sqrt() } else { 1.0 }
    }
}

static FAMILIES: [Family; 4] = [LLAMA, QWEN2, QWEN3, GEMMA3];

/// An architecture that the forward pass supports.
#[derive(Clone, Copy)]
pub struct Architecture(pub(crate) &'static Family);

impl Architecture {
    /// Every supported architecture.
    pub fn all() -> impl Iterator<Item = Architecture> {
        FAMILIES.iter().map(Architecture)
    }

    /// The architecture of this name in GGUF files.
    pub fn named(name: &str) -> Option<Architecture> {
        Architecture::all().find(|a| a.name() == name)
    }

    /// The architecture of this `model_type` in a folder's `config.json`.
    pub(crate) fn of_folder(model_type: &str) -> Option<Architecture> {
        Architecture::all().find(|a| a.0.folder_types.contains(&model_type))
    }

    /// The fault of a file whose architecture is called `name`.
    pub(crate) fn unknown(name: &str) -> ModelError {
        let supported: Vec<&str> = Architecture::all().map(Architecture::name).collect();
        ModelError::Architecture { found: name.to_owned(), supported: supported.join(", ") }
    }

    /// The name in GGUF files.
    pub fn name(self) -> &'static str {
        self.0.name
    }
}

impl PartialEq for Architecture {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Architecture {}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
