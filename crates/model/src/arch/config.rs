//! An architecture as data: everything by which the supported families differ in the one forward pass.
//!
//! Read from the metadata of a GGUF file (keys `<architecture>.*`, GGUF specification, "standardized key-value pairs") or
//! from a Hugging Face `config.json`. Every value is checked here, so that the forward pass can rely on it.

use selfspec_kernels::{GateActivation, RopeStyle};
use selfspec_weights::{Checkpoint, Metadata, Source};
use serde_json::Value;

use crate::error::ModelError;

/// Families that the forward pass has data for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2, Llama 3, SmolLM2, and others that publish as `llama` (Mistral GGUF files among them).
    Llama,
    /// Qwen2 and Qwen2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: norms on each head of q and k.
    Qwen3,
    /// Gemma 3 (text): sandwich norms, q/k norms, local and global attention, scaled embeddings.
    Gemma3,
}

impl Architecture {
    /// The name in GGUF files.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
            Architecture::Gemma3 => "gemma3",
        }
    }

    fn from_gguf(name: &str) -> Result<Self, ModelError> {
        [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3, Architecture::Gemma3]
            .into_iter()
            .find(|a| a.name() == name)
            .ok_or_else(|| ModelError::Architecture { found: name.to_owned() })
    }

    fn from_hf(model_type: &str) -> Result<Self, ModelError> {
        match model_type {
            "llama" => Ok(Architecture::Llama),
            "qwen2" => Ok(Architecture::Qwen2),
            "qwen3" => Ok(Architecture::Qwen3),
            "gemma3_text" | "gemma3" => Ok(Architecture::Gemma3),
            other => Err(ModelError::Architecture { found: other.to_owned() }),
        }
    }
}

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
        /// Context length of the first training.
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
    /// Width of the feed-forward layer.
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
    /// Added to every norm weight (1 in Gemma's own checkpoints, 0 in GGUF files, which have it added already).
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
    /// Biases on q, k and v must be there. Where they need not, they are used if they are.
    pub qkv_bias: bool,
    /// Whether the head is the embedding; `None` where that shows in whether there is a head.
    pub tied: Option<bool>,
    /// Norms after attention and after the feed-forward layer, before they are added to the residual stream.
    pub sandwich_norms: bool,
    /// Factor on the embedding.
    pub embedding_scale: f32,
    /// Factor on the attention scores.
    pub attention_scale: f32,
    /// Activation of the gated feed-forward layer.
    pub gate: GateActivation,
}

/// Upper bound on any size in a configuration: large enough for every model, small enough that products fit in `usize`.
const MAX_SIZE: usize = 1 << 24;

/// Gemma 3 has one global layer after every five local ones (Gemma 3 technical report, section 2.1).
const GEMMA3_PATTERN: usize = 6;
/// Base of the rotary frequencies in Gemma 3's local layers (same section).
const GEMMA3_LOCAL_ROPE_BASE: f32 = 10_000.0;
/// The number of layers of Gemma 3 27B, the one size whose score scale is not `1/sqrt(head_dim)`.
const GEMMA3_27B_LAYERS: usize = 62;

impl ArchConfig {
    /// From a checkpoint of either kind.
    ///
    /// # Errors
    /// Those of [`ArchConfig::from_gguf`] and [`ArchConfig::from_hf`], with the place in the file.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let config = match checkpoint.source() {
            Source::Gguf(metadata) => ArchConfig::from_gguf(metadata),
            Source::HuggingFace { config, .. } => ArchConfig::from_hf(config),
        };
        config.map_err(|e| e.located(checkpoint))
    }

    /// From the metadata of a GGUF file.
    ///
    /// # Errors
    /// [`ModelError::Architecture`] for a family that is not supported; [`ModelError::Field`] names a missing or impossible value.
    pub fn from_gguf(meta: &Metadata) -> Result<Self, ModelError> {
        let name = meta.str("general.architecture")?;
        let name = name.ok_or_else(|| ModelError::field("general.architecture", "missing"))?;
        let architecture = Architecture::from_gguf(name)?;
        let key = |suffix: &str| format!("{name}.{suffix}");
        let size = |suffix: &str| -> Result<Option<usize>, ModelError> {
            match meta.u64(&key(suffix))? {
                Some(value) => checked_size(&key(suffix), value).map(Some),
                None => Ok(None),
            }
        };
        let need = |suffix: &str| -> Result<usize, ModelError> {
            size(suffix)?.ok_or_else(|| ModelError::field(key(suffix), "missing"))
        };
        let real = |suffix: &str| -> Result<Option<f32>, ModelError> {
            match meta.f64(&key(suffix))? {
                Some(value) => positive(&key(suffix), value).map(Some),
                None => Ok(None),
            }
        };

        let n_layers = need("block_count")?;
        let dim = need("embedding_length")?;
        let heads = need("attention.head_count")?;
        let head_dim = match size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None => split_heads(&key("attention.head_count"), dim, heads)?,
        };
        if let Some(value) = size("attention.value_length")?.filter(|v| *v != head_dim) {
            return Err(ModelError::field(
                key("attention.value_length"),
                format!("{value} differs from the key length {head_dim}, which is not supported"),
            ));
        }
        let stated_vocab = size("vocab_size")?;
        let tokens = meta.strings("tokenizer.ggml.tokens")?.map(|t| t.len());
        if let (Some(stated), Some(tokens)) = (stated_vocab, tokens)
            && stated != tokens
        {
            return Err(ModelError::field(
                key("vocab_size"),
                format!("{stated} differs from the {tokens} tokens of tokenizer.ggml.tokens"),
            ));
        }
        let rope_scaling = match meta.str(&key("rope.scaling.type"))? {
            None | Some("none") => match real("rope.scale_linear")? {
                Some(factor) => RopeScaling::Linear { factor },
                None => RopeScaling::None,
            },
            Some("linear") => {
                let factor = real("rope.scaling.factor")?
                    .ok_or_else(|| ModelError::field(key("rope.scaling.factor"), "missing"))?;
                RopeScaling::Linear { factor }
            }
            Some(other) => {
                return Err(ModelError::field(key("rope.scaling.type"), format!("`{other}` is not supported")));
            }
        };
        let gemma = architecture == Architecture::Gemma3;
        let local = match (gemma, size("attention.sliding_window")?) {
            (true, Some(window)) => Some(LocalAttention {
                window,
                rope_base: real("rope.local.freq_base")?.unwrap_or(GEMMA3_LOCAL_ROPE_BASE),
                layers: (0..n_layers).map(|l| (l + 1) % GEMMA3_PATTERN != 0).collect(),
            }),
            (true, None) => return Err(ModelError::field(key("attention.sliding_window"), "missing")),
            (false, Some(window)) if window < need("context_length")? => {
                return Err(ModelError::field(
                    key("attention.sliding_window"),
                    format!("a window of {window} positions is not supported in this architecture"),
                ));
            }
            (false, _) => None,
        };
        let attention_scale = if gemma && n_layers == GEMMA3_27B_LAYERS {
            1.0 / (split_heads(&key("attention.head_count"), dim, heads)? as f32).sqrt()
        } else {
            1.0 / (head_dim as f32).sqrt()
        };
        ArchConfig {
            architecture,
            n_layers,
            dim,
            ffn_dim: need("feed_forward_length")?,
            heads,
            kv_heads: size("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            vocab: tokens.or(stated_vocab),
            context: need("context_length")?,
            norm_eps: real("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| ModelError::field(key("attention.layer_norm_rms_epsilon"), "missing"))?,
            norm_offset: 0.0,
            rope_base: real("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling,
            rope_dims: size("rope.dimension_count")?.unwrap_or(head_dim),
            // The converter permutes q and k of Llama so that pairs are neighbours; the other families keep halves.
            rope_style: if architecture == Architecture::Llama { RopeStyle::Interleaved } else { RopeStyle::Halves },
            local,
            qk_norm: gemma || architecture == Architecture::Qwen3,
            qkv_bias: architecture == Architecture::Qwen2,
            tied: None,
            sandwich_norms: gemma,
            embedding_scale: if gemma { (dim as f32).sqrt() } else { 1.0 },
            attention_scale,
            gate: if gemma { GateActivation::GeluTanh } else { GateActivation::Silu },
        }
        .checked(&key("attention.head_count"), &key("attention.head_count_kv"), &key("rope.dimension_count"))
    }

    /// From a Hugging Face `config.json`.
    ///
    /// # Errors
    /// As [`ArchConfig::from_gguf`].
    pub fn from_hf(config: &Value) -> Result<Self, ModelError> {
        let outer_type = config.get("model_type").and_then(Value::as_str);
        let model_type = outer_type.ok_or_else(|| ModelError::field("model_type", "missing, or not a string"))?;
        let architecture = Architecture::from_hf(model_type)?;
        // Multimodal Gemma keeps the text model's configuration one level down.
        let config = config.get("text_config").unwrap_or(config);
        let get = |field: &str| config.get(field).filter(|v| !v.is_null());
        let size = |field: &str| -> Result<Option<usize>, ModelError> {
            let Some(value) = get(field) else { return Ok(None) };
            let value = value.as_u64();
            let value = value.ok_or_else(|| ModelError::field(field, "not a whole number"))?;
            checked_size(field, value).map(Some)
        };
        let need = |field: &str| -> Result<usize, ModelError> {
            size(field)?.ok_or_else(|| ModelError::field(field, "missing"))
        };
        let real = |field: &str| hf_real(config, field);

        let n_layers = need("num_hidden_layers")?;
        let dim = need("hidden_size")?;
        let heads = need("num_attention_heads")?;
        let head_dim = match size("head_dim")? {
            Some(head_dim) => head_dim,
            None => split_heads("num_attention_heads", dim, heads)?,
        };
        let gemma = architecture == Architecture::Gemma3;
        let context = need("max_position_embeddings")?;
        let rope = HfRope::read(config)?;
        let local = match (gemma, size("sliding_window")?) {
            (true, None) => return Err(ModelError::field("sliding_window", "missing")),
            (true, Some(window)) => Some(LocalAttention {
                window,
                rope_base: rope.local_base.unwrap_or(GEMMA3_LOCAL_ROPE_BASE),
                layers: hf_local_layers(config, n_layers)?,
            }),
            (false, window) => {
                let used = hf_bool(config, "use_sliding_window")?.unwrap_or(true);
                if let Some(window) = window.filter(|w| used && *w < context) {
                    let problem = format!("a window of {window} positions is not supported in this architecture");
                    return Err(ModelError::field("sliding_window", problem));
                }
                None
            }
        };
        let attention_scale = match real("query_pre_attn_scalar")? {
            Some(scalar) if gemma => 1.0 / scalar.sqrt(),
            _ => 1.0 / (head_dim as f32).sqrt(),
        };
        let activation = if gemma { "hidden_activation" } else { "hidden_act" };
        let gate = match get(activation) {
            None if gemma => GateActivation::GeluTanh,
            None => GateActivation::Silu,
            Some(Value::String(name)) if name == "silu" => GateActivation::Silu,
            Some(Value::String(name)) if name == "gelu_pytorch_tanh" => GateActivation::GeluTanh,
            Some(other) => return Err(ModelError::field(activation, format!("{other} is not supported"))),
        };
        if get("quantization_config").is_some() {
            return Err(ModelError::field(
                "quantization_config",
                "quantised folders are not supported (GGUF files are)",
            ));
        }
        ArchConfig {
            architecture,
            n_layers,
            dim,
            ffn_dim: need("intermediate_size")?,
            heads,
            kv_heads: size("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            vocab: Some(need("vocab_size")?),
            context,
            norm_eps: real("rms_norm_eps")?.unwrap_or(1e-6),
            norm_offset: if gemma { 1.0 } else { 0.0 },
            rope_base: rope.base.unwrap_or(if gemma { 1_000_000.0 } else { 10_000.0 }),
            rope_scaling: rope.scaling,
            rope_dims: head_dim,
            rope_style: RopeStyle::Halves,
            local,
            qk_norm: gemma || architecture == Architecture::Qwen3,
            qkv_bias: architecture == Architecture::Qwen2 || hf_bool(config, "attention_bias")?.unwrap_or(false),
            tied: hf_bool(config, "tie_word_embeddings")?,
            sandwich_norms: gemma,
            embedding_scale: if gemma { (dim as f32).sqrt() } else { 1.0 },
            attention_scale,
            gate,
        }
        .checked("num_attention_heads", "num_key_value_heads", "head_dim")
    }

    fn checked(self, heads_field: &str, kv_field: &str, rope_field: &str) -> Result<Self, ModelError> {
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

    /// First position that a row at `pos` sees in `layer`.
    pub fn first_visible(&self, layer: usize, pos: usize) -> usize {
        match &self.local {
            Some(local) if local.layers[layer] => (pos + 1).saturating_sub(local.window),
            _ => 0,
        }
    }
}

/// The rotary settings of a `config.json`: `rope_theta` and `rope_scaling`, or `rope_parameters` as transformers 5 writes them,
/// which Gemma 3 splits by kind of layer.
struct HfRope {
    base: Option<f32>,
    local_base: Option<f32>,
    scaling: RopeScaling,
}

impl HfRope {
    fn read(config: &Value) -> Result<Self, ModelError> {
        let object = |value: &Value, field: &str| match value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(found @ Value::Object(_)) => Ok(Some(found.clone())),
            Some(other) => Err(ModelError::field(field, format!("{other} is not an object"))),
        };
        let parameters = object(config, "rope_parameters")?;
        let (global, local) = match &parameters {
            None => (None, None),
            Some(all) => {
                (Some(object(all, "full_attention")?.unwrap_or_else(|| all.clone())), object(all, "sliding_attention")?)
            }
        };
        let base_of = |value: &Option<Value>| match value {
            Some(value) => hf_real(value, "rope_theta"),
            None => Ok(None),
        };
        let (base, local_base) = (base_of(&global)?, base_of(&local)?);
        Ok(HfRope {
            base: if base.is_some() { base } else { hf_real(config, "rope_theta")? },
            local_base: if local_base.is_some() { local_base } else { hf_real(config, "rope_local_base_freq")? },
            scaling: match object(config, "rope_scaling")?.or(global) {
                Some(scaling) => hf_scaling(&scaling)?,
                None => RopeScaling::None,
            },
        })
    }
}

fn hf_scaling(scaling: &Value) -> Result<RopeScaling, ModelError> {
    let need = |field: &str| -> Result<f32, ModelError> {
        hf_real(scaling, field)?.ok_or_else(|| ModelError::field(format!("rope_scaling.{field}"), "missing"))
    };
    match scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str) {
        Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: need("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_context: need("original_max_position_embeddings")?,
        }),
        Some(other) => Err(ModelError::field("rope_scaling.rope_type", format!("`{other}` is not supported"))),
        None => Err(ModelError::field("rope_scaling.rope_type", "missing")),
    }
}

fn hf_real(object: &Value, field: &str) -> Result<Option<f32>, ModelError> {
    let Some(value) = object.get(field).filter(|v| !v.is_null()) else { return Ok(None) };
    let value = value.as_f64();
    positive(field, value.ok_or_else(|| ModelError::field(field, "not a number"))?).map(Some)
}

fn hf_local_layers(config: &Value, n_layers: usize) -> Result<Vec<bool>, ModelError> {
    if let Some(types) = config.get("layer_types").and_then(Value::as_array) {
        if types.len() != n_layers {
            let problem = format!("{} entries for {n_layers} layers", types.len());
            return Err(ModelError::field("layer_types", problem));
        }
        return types
            .iter()
            .map(|t| match t.as_str() {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
                _ => Err(ModelError::field("layer_types", format!("{t} is not supported"))),
            })
            .collect();
    }
    let pattern = match config.get("sliding_window_pattern").filter(|v| !v.is_null()) {
        None => GEMMA3_PATTERN,
        Some(pattern) => {
            let value = pattern.as_u64();
            let value = value.ok_or_else(|| ModelError::field("sliding_window_pattern", "not a whole number"))?;
            checked_size("sliding_window_pattern", value)?
        }
    };
    Ok((0..n_layers).map(|l| (l + 1) % pattern != 0).collect())
}

fn hf_bool(object: &Value, field: &str) -> Result<Option<bool>, ModelError> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(ModelError::field(field, format!("{other} is neither true nor false"))),
    }
}

fn checked_size(field: &str, value: u64) -> Result<usize, ModelError> {
    match usize::try_from(value) {
        Ok(value) if (1..=MAX_SIZE).contains(&value) => Ok(value),
        _ => Err(ModelError::field(field, format!("{value} is not between 1 and {MAX_SIZE}"))),
    }
}

fn positive(field: &str, value: f64) -> Result<f32, ModelError> {
    let narrow = value as f32;
    if narrow.is_finite() && narrow > 0.0 {
        return Ok(narrow);
    }
    Err(ModelError::field(field, format!("{value} is not a positive number")))
}

fn split_heads(field: &str, dim: usize, heads: usize) -> Result<usize, ModelError> {
    if !dim.is_multiple_of(heads) {
        return Err(ModelError::field(field, format!("{heads} heads do not divide a width of {dim}")));
    }
    Ok(dim / heads)
}
