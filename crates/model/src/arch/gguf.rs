//! Reads a configuration from the metadata of a GGUF file: the keys `<architecture>.*` of the GGUF
//! specification, "standardized key-value pairs".

use selfspec_weights::Metadata;

use super::checks::{checked_size, positive, required, score_scale, split_heads, unsupported_window};
use super::config::{ArchConfig, LocalAttention, RopeScaling};
use super::family::{Architecture, Family, LocalLayers};
use crate::error::ModelError;

/// The base of the rotary frequencies where the file does not state it.
const ROPE_BASE: f32 = 10_000.0;

/// The keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    family: &'static Family,
}

/// Reads and checks a configuration.
///
/// # Errors
/// [`ModelError::Architecture`] for a family that is not supported; [`ModelError::Field`] names a
/// missing or impossible value.
pub(crate) fn read(metadata: &Metadata) -> Result<ArchConfig, ModelError> {
    let name = required("general.architecture", metadata.str("general.architecture")?)?;
    let architecture = Architecture::named(name).ok_or_else(|| Architecture::unknown(name))?;
    let keys = Keys { metadata, family: architecture.0 };
    keys.config(architecture)
}

impl Keys<'_> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.family.name)
    }

    fn size(&self, suffix: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(suffix);
        self.metadata.u64(&key)?.map(|value| checked_size(&key, value)).transpose()
    }

    fn need(&self, suffix: &str) -> Result<usize, ModelError> {
        required(self.key(suffix), self.size(suffix)?)
    }

    fn real(&self, suffix: &str) -> Result<Option<f32>, ModelError> {
        let key = self.key(suffix);
        self.metadata.f64(&key)?.map(|value| positive(&key, value)).transpose()
    }

    fn config(&self, architecture: Architecture) -> Result<ArchConfig, ModelError> {
        let family = self.family;
        let n_layers = self.need("block_count")?;
        let dim = self.need("embedding_length")?;
        let heads = self.need("attention.head_count")?;
        let heads_key = self.key("attention.head_count");
        let head_dim = match self.size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None => split_heads(&heads_key, dim, heads)?,
        };
        if let Some(value) = self.size("attention.value_length")?.filter(|v| *v != head_dim) {
            let problem = format!("{value} differs from the key length {head_dim}, which is not supported");
            return Err(ModelError::field(self.key("attention.value_length"), problem));
        }
        let vocab = self.vocab()?;
        let rope_scaling = self.rope_scaling()?;
        let local = self.local(n_layers)?;
        let score_width = match family.gguf_wide_score_layers {
            Some(layers) if layers == n_layers => split_heads(&heads_key, dim, heads)?,
            _ => head_dim,
        };
        let norm_eps = self.real("attention.layer_norm_rms_epsilon")?;
        ArchConfig {
            architecture,
            n_layers,
            dim,
            ffn_dim: self.need("feed_forward_length")?,
            heads,
            kv_heads: self.size("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            vocab,
            context: self.need("context_length")?,
            norm_eps: required(self.key("attention.layer_norm_rms_epsilon"), norm_eps)?,
            norm_offset: 0.0,
            rope_base: self.real("rope.freq_base")?.unwrap_or(ROPE_BASE),
            rope_scaling,
            rope_dims: self.size("rope.dimension_count")?.unwrap_or(head_dim),
            rope_style: family.gguf_rope,
            local,
            qk_norm: family.qk_norm,
            qkv_bias: family.qkv_bias,
            tied: None,
            sandwich_norms: family.sandwich_norms,
            embedding_scale: family.embedding_scale(dim),
            attention_scale: score_scale(score_width as f32),
            gate: family.gate,
        }
        .checked(&heads_key, &self.key("attention.head_count_kv"), &self.key("rope.dimension_count"))
    }

    fn vocab(&self) -> Result<Option<usize>, ModelError> {
        let stated = self.size("vocab_size")?;
        let tokens = self.metadata.strings("tokenizer.ggml.tokens")?.map(|t| t.len());
        match (stated, tokens) {
            (Some(stated), Some(tokens)) if stated != tokens => Err(ModelError::field(
                self.key("vocab_size"),
                format!("{stated} differs from the {tokens} tokens of tokenizer.ggml.tokens"),
            )),
            _ => Ok(tokens.or(stated)),
        }
    }

    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        match self.metadata.str(&self.key("rope.scaling.type"))? {
            None | Some("none") => Ok(match self.real("rope.scale_linear")? {
                Some(factor) => RopeScaling::Linear { factor },
                None => RopeScaling::None,
            }),
            Some("linear") => {
                let factor = required(self.key("rope.scaling.factor"), self.real("rope.scaling.factor")?)?;
                Ok(RopeScaling::Linear { factor })
            }
            Some(other) => Err(ModelError::field(self.key("rope.scaling.type"), format!("`{other}` is not supported"))),
        }
    }

    fn local(&self, n_layers: usize) -> Result<Option<LocalAttention>, ModelError> {
        let window = self.size("attention.sliding_window")?;
        let key = || self.key("attention.sliding_window");
        match (&self.family.local, window) {
            (Some(local), window) => Ok(Some(LocalAttention {
                window: required(key(), window)?,
                rope_base: self.real("rope.local.freq_base")?.unwrap_or(local.rope_base),
                layers: LocalLayers::pattern(n_layers, local.global_every),
            })),
            (None, Some(window)) if window < self.need("context_length")? => Err(unsupported_window(key(), window)),
            (None, _) => Ok(None),
        }
    }
}
