//! What each weight is called in a GGUF file and in a Hugging Face folder.

use selfspec_weights::{Checkpoint, Source};

use crate::arch::config::ArchConfig;

/// A weight of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named after the tensors
pub enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    PostAttentionNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    PostFeedForwardNorm,
}

/// Which naming a checkpoint follows.
#[derive(Debug, Clone)]
pub enum Names {
    /// That of GGUF files.
    Gguf,
    /// That of Hugging Face folders.
    ///
    /// With the prefix of the text model, for example `model.` or `language_model.model.`. In `sandwich` models the name
    /// `post_attention_layernorm` means what it says; elsewhere it is the norm before the feed-forward layer.
    HuggingFace {
        /// What stands before every name of the text model.
        prefix: String,
        /// Whether the family has norms after attention and after the feed-forward layer.
        sandwich: bool,
    },
}

impl Names {
    /// The naming of a checkpoint, whose configuration is `config`.
    pub fn of(checkpoint: &Checkpoint, config: &ArchConfig) -> Names {
        match checkpoint.source() {
            Source::Gguf(_) => Names::Gguf,
            Source::HuggingFace { .. } => {
                Names::HuggingFace { prefix: hf_prefix(checkpoint), sandwich: config.sandwich_norms }
            }
        }
    }

    /// The embedding.
    pub fn embedding(&self) -> String {
        match self {
            Names::Gguf => "token_embd.weight".to_owned(),
            Names::HuggingFace { prefix, .. } => format!("{prefix}embed_tokens.weight"),
        }
    }

    /// The norm before the head.
    pub fn output_norm(&self) -> String {
        match self {
            Names::Gguf => "output_norm.weight".to_owned(),
            Names::HuggingFace { prefix, .. } => format!("{prefix}norm.weight"),
        }
    }

    /// The head, where it is not the embedding.
    pub fn head(&self) -> String {
        match self {
            Names::Gguf => "output.weight".to_owned(),
            Names::HuggingFace { prefix, .. } => format!("{}lm_head.weight", prefix.trim_end_matches("model.")),
        }
    }

    pub(crate) fn rope_factors(&self) -> Option<&'static str> {
        match self {
            Names::Gguf => Some("rope_freqs.weight"),
            Names::HuggingFace { .. } => None,
        }
    }

    /// A weight of a layer.
    pub fn layer(&self, layer: usize, tensor: LayerTensor) -> String {
        use LayerTensor as T;
        match self {
            Names::Gguf => {
                let name = match tensor {
                    T::AttentionNorm => "attn_norm.weight",
                    T::Query => "attn_q.weight",
                    T::Key => "attn_k.weight",
                    T::Value => "attn_v.weight",
                    T::AttentionOutput => "attn_output.weight",
                    T::QueryBias => "attn_q.bias",
                    T::KeyBias => "attn_k.bias",
                    T::ValueBias => "attn_v.bias",
                    T::QueryNorm => "attn_q_norm.weight",
                    T::KeyNorm => "attn_k_norm.weight",
                    T::PostAttentionNorm => "post_attention_norm.weight",
                    T::FeedForwardNorm => "ffn_norm.weight",
                    T::Gate => "ffn_gate.weight",
                    T::Up => "ffn_up.weight",
                    T::Down => "ffn_down.weight",
                    T::PostFeedForwardNorm => "post_ffw_norm.weight",
                };
                format!("blk.{layer}.{name}")
            }
            Names::HuggingFace { prefix, sandwich } => {
                let name = match tensor {
                    T::AttentionNorm => "input_layernorm.weight",
                    T::Query => "self_attn.q_proj.weight",
                    T::Key => "self_attn.k_proj.weight",
                    T::Value => "self_attn.v_proj.weight",
                    T::AttentionOutput => "self_attn.o_proj.weight",
                    T::QueryBias => "self_attn.q_proj.bias",
                    T::KeyBias => "self_attn.k_proj.bias",
                    T::ValueBias => "self_attn.v_proj.bias",
                    T::QueryNorm => "self_attn.q_norm.weight",
                    T::KeyNorm => "self_attn.k_norm.weight",
                    T::PostAttentionNorm => "post_attention_layernorm.weight",
                    T::FeedForwardNorm if *sandwich => "pre_feedforward_layernorm.weight",
                    T::FeedForwardNorm => "post_attention_layernorm.weight",
                    T::Gate => "mlp.gate_proj.weight",
                    T::Up => "mlp.up_proj.weight",
                    T::Down => "mlp.down_proj.weight",
                    T::PostFeedForwardNorm => "post_feedforward_layernorm.weight",
                };
                format!("{prefix}layers.{layer}.{name}")
            }
        }
    }

    /// Names of biases that no supported family has: a checkpoint with one would give wrong output without an error.
    pub(crate) fn unsupported_biases(&self, layer: usize) -> Vec<String> {
        match self {
            Names::Gguf => ["attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"]
                .map(|n| format!("blk.{layer}.{n}.bias"))
                .to_vec(),
            Names::HuggingFace { prefix, .. } => ["self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
                .map(|n| format!("{prefix}layers.{layer}.{n}.bias"))
                .to_vec(),
        }
    }
}

/// The text model's prefix: multimodal checkpoints nest it.
fn hf_prefix(checkpoint: &Checkpoint) -> String {
    const END: &str = "embed_tokens.weight";
    let found = checkpoint.tensors().find_map(|t| t.name.strip_suffix(END).map(str::to_owned));
    found.unwrap_or_else(|| "model.".to_owned())
}
