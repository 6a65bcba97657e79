//! Reads a configuration from a Hugging Face `config.json`.

use selfspec_kernels::{GateActivation, RopeStyle};
use serde_json::Value;

use super::checks::{checked_size, positive, required, score_scale, split_heads, unsupported_window};
use super::config::{ArchConfig, LocalAttention, RopeScaling};
use super::family::{Architecture, Family, LocalLayers};
use crate::error::ModelError;

/// Epsilon of the norms where the file does not state it.
const NORM_EPS: f32 = 1e-6;

/// Reads and checks a configuration.
///
/// # Errors
/// [`ModelError::Architecture`] for a family that is not supported; [`ModelError::Field`] names a
/// missing or impossible value.
pub(crate) fn read(config: &Value) -> Result<ArchConfig, ModelError> {
    let model_type = config.get("model_type").and_then(Value::as_str);
    let model_type = model_type.ok_or_else(|| ModelError::field("model_type", "missing, or not a string"))?;
    let architecture = Architecture::of_folder(model_type).ok_or_else(|| Architecture::unknown(model_type))?;
    // Multimodal Gemma keeps the text model's configuration one level down.
    Fields(config.get("text_config").unwrap_or(config)).config(architecture)
}

/// An object of the file, whose nulls count as missing.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|v| !v.is_null())
    }

    fn size(&self, field: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let value = value.as_u64().ok_or_else(|| ModelError::field(field, "not a whole number"))?;
        checked_size(field, value).map(Some)
    }

    fn need(&self, field: &str) -> Result<usize, ModelError> {
        required(field, self.size(field)?)
    }

    fn real(&self, field: &str) -> Result<Option<f32>, ModelError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        positive(field, value.as_f64().ok_or_else(|| ModelError::field(field, "not a number"))?).map(Some)
    }

    fn bool(&self, field: &str) -> Result<Option<bool>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(ModelError::field(field, format!("{other} is neither true nor false"))),
        }
    }

    fn object(&self, field: &str) -> Result<Option<Fields<'a>>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(found @ Value::Object(_)) => Ok(Some(Fields(found))),
            Some(other) => Err(ModelError::field(field, format!("{other} is not an object"))),
        }
    }

    fn config(&self, architecture: Architecture) -> Result<ArchConfig, ModelError> {
        let family = architecture.0;
        let n_layers = self.need("num_hidden_layers")?;
        let dim = self.need("hidden_size")?;
        let heads = self.need("num_attention_heads")?;
        let head_dim = match self.size("head_dim")? {
            Some(head_dim) => head_dim,
            None => split_heads("num_attention_heads", dim, heads)?,
        };
        let context = self.need("max_position_embeddings")?;
        let rope = RopeFields::read(self)?;
        let local = self.local(family, n_layers, context, &rope)?;
        let score_width = family.folder_score_field.map(|field| self.real(field)).transpose()?.flatten();
        let gate = self.gate(family)?;
        if self.get("quantization_config").is_some() {
            let problem = "quantised folders are not supported (GGUF files are)";
            return Err(ModelError::field("quantization_config", problem));
        }
        ArchConfig {
            architecture,
            n_layers,
            dim,
            ffn_dim: self.need("intermediate_size")?,
            heads,
            kv_heads: self.size("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            vocab: Some(self.need("vocab_size")?),
            context,
            norm_eps: self.real("rms_norm_eps")?.unwrap_or(NORM_EPS),
            norm_offset: family.folder_norm_offset,
            rope_base: rope.base.unwrap_or(family.folder_rope_base),
            rope_scaling: rope.scaling,
            rope_dims: head_dim,
            rope_style: RopeStyle::Halves,
            local,
            qk_norm: family.qk_norm,
            qkv_bias: family.qkv_bias || self.bool("attention_bias")?.unwrap_or(false),
            tied: self.bool("tie_word_embeddings")?,
            sandwich_norms: family.sandwich_norms,
            embedding_scale: family.embedding_scale(dim),
            attention_scale: score_scale(score_width.unwrap_or(head_dim as f32)),
            gate,
        }
        .checked("num_attention_heads", "num_key_value_heads", "head_dim")
    }

    fn gate(&self, family: &Family) -> Result<GateActivation, ModelError> {
        match self.get(family.folder_gate) {
            None => Ok(family.gate),
            Some(Value::String(name)) if name == "silu" => Ok(GateActivation::Silu),
            Some(Value::String(name)) if name == "gelu_pytorch_tanh" => Ok(GateActivation::GeluTanh),
            Some(other) => Err(ModelError::field(family.folder_gate, format!("{other} is not supported"))),
        }
    }

    fn local(
        &self,
        family: &Family,
        n_layers: usize,
        context: usize,
        rope: &RopeFields,
    ) -> Result<Option<LocalAttention>, ModelError> {
        let window = self.size("sliding_window")?;
        let Some(local) = &family.local else {
            let used = self.bool("use_sliding_window")?.unwrap_or(true);
            return match window.filter(|w| used && *w < context) {
                Some(window) => Err(unsupported_window("sliding_window", window)),
                None => Ok(None),
            };
        };
        Ok(Some(LocalAttention {
            window: required("sliding_window", window)?,
            rope_base: rope.local_base.unwrap_or(local.rope_base),
            layers: match self.get("layer_types").and_then(Value::as_array) {
                Some(types) => layer_types(types, n_layers)?,
                None => {
                    let every = self.size("sliding_window_pattern")?.unwrap_or(local.global_every);
                    LocalLayers::pattern(n_layers, every)
                }
            },
        }))
    }
}

/// Whether each layer is local, by its type.
fn layer_types(types: &[Value], n_layers: usize) -> Result<Vec<bool>, ModelError> {
    if types.len() != n_layers {
        let problem = format!("{} entries for {n_layers} layers", types.len());
        return Err(ModelError::field("layer_types", problem));
    }
    let local = |t: &Value| match t.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(ModelError::field("layer_types", format!("{t} is not supported"))),
    };
    types.iter().map(local).collect()
}

/// The rotary settings of a `config.json`: `rope_theta` and `rope_scaling`, or `rope_parameters` as
/// transformers 5 writes them, which Gemma 3 splits by kind of layer.
struct RopeFields {
    base: Option<f32>,
    local_base: Option<f32>,
    scaling: RopeScaling,
}

impl RopeFields {
    fn read(config: &Fields<'_>) -> Result<Self, ModelError> {
        let (global, local) = match config.object("rope_parameters")? {
            None => (None, None),
            Some(all) => {
                let local = all.object("sliding_attention")?;
                (Some(all.object("full_attention")?.unwrap_or(all)), local)
            }
        };
        let base_of = |fields: &Option<Fields<'_>>| match fields {
            Some(fields) => fields.real("rope_theta"),
            None => Ok(None),
        };
        let (base, local_base) = (base_of(&global)?, base_of(&local)?);
        Ok(RopeFields {
            base: if base.is_some() { base } else { config.real("rope_theta")? },
            local_base: if local_base.is_some() { local_base } else { config.real("rope_local_base_freq")? },
            scaling: match config.object("rope_scaling")?.or(global) {
                Some(fields) => rope_scaling(&fields)?,
                None => RopeScaling::None,
            },
        })
    }
}

fn rope_scaling(fields: &Fields<'_>) -> Result<RopeScaling, ModelError> {
    let need = |field: &str| required(format!("rope_scaling.{field}"), fields.real(field)?);
    let kind = fields.get("rope_type").or_else(|| fields.get("type")).and_then(Value::as_str);
    match required("rope_scaling.rope_type", kind)? {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: need("factor")? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_context: need("original_max_position_embeddings")?,
        }),
        other => Err(ModelError::field("rope_scaling.rope_type", format!("`{other}` is not supported"))),
    }
}
