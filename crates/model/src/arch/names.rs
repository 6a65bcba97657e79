//! The names that a checkpoint gives to the tensors of a model.

use std::ops::Range;

use selfspec_weights::{Checkpoint, Source};

use super::config::ArchConfig;
use super::family::{Architecture, FusedTensor};
use super::tensor::{LayerForm, LayerTensor, ModelTensor, Presence};

/// The names of a model's tensors in its files.
#[derive(Debug, Clone)]
pub struct TensorNames {
    architecture: Architecture,
    style: Style,
}

#[derive(Debug, Clone)]
enum Style {
    Gguf,
    Folder { prefix: String }, // stands before every name of the text model
}

/// The tensor of a file that holds a tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlace {
    /// Its name.
    pub name: String,
    /// The rows of it that are meant, where it holds several tensors of the model.
    pub slice: Option<RowSlice>,
}

/// Rows of a fused tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSlice {
    /// The rows.
    pub rows: Range<usize>,
    /// Number of rows of the fused tensor.
    pub of: usize,
}

impl TensorNames {
    /// The names in `checkpoint`, whose configuration is `config`.
    pub fn of(checkpoint: &Checkpoint, config: &ArchConfig) -> TensorNames {
        match checkpoint.source() {
            Source::Gguf(_) => TensorNames::gguf(config.architecture),
            Source::HuggingFace { .. } => TensorNames::folder(config.architecture, &text_prefix(checkpoint)),
        }
    }

    /// The names in GGUF files.
    pub fn gguf(architecture: Architecture) -> TensorNames {
        TensorNames { architecture, style: Style::Gguf }
    }

    /// The names in a Hugging Face folder whose text model has this prefix, for example `model.` or
    /// `language_model.model.`.
    pub fn folder(architecture: Architecture, prefix: &str) -> TensorNames {
        TensorNames { architecture, style: Style::Folder { prefix: prefix.to_owned() } }
    }

    /// The place of a tensor of a model whose layers have this form.
    pub fn place(&self, form: &LayerForm, tensor: ModelTensor) -> TensorPlace {
        let whole = |name: String| TensorPlace { name, slice: None };
        match (tensor, &self.style) {
            (ModelTensor::Embedding, Style::Gguf) => whole("token_embd.weight".to_owned()),
            (ModelTensor::Embedding, Style::Folder { prefix }) => whole(format!("{prefix}embed_tokens.weight")),
            (ModelTensor::OutputNorm, Style::Gguf) => whole("output_norm.weight".to_owned()),
            (ModelTensor::OutputNorm, Style::Folder { prefix }) => whole(format!("{prefix}norm.weight")),
            (ModelTensor::Head, Style::Gguf) => whole("output.weight".to_owned()),
            (ModelTensor::Head, Style::Folder { prefix }) => whole(format!("{}lm_head.weight", outside(prefix))),
            (ModelTensor::Layer(layer, tensor), _) => self.layer(form, layer, tensor),
        }
    }

    fn layer(&self, form: &LayerForm, layer: usize, tensor: LayerTensor) -> TensorPlace {
        let family = self.architecture.0;
        let fused = family.fused.iter().find(|fused| fused.parts.contains(&tensor));
        let name = self.in_layer(layer, self.stem(tensor, fused));
        let slice = fused.map(|fused| {
            let rows = |part: &LayerTensor| part.shape(form).rows();
            let first = fused.parts.iter().take_while(|part| **part != tensor).map(rows).sum();
            RowSlice { rows: first..first + rows(&tensor), of: fused.parts.iter().map(rows).sum() }
        });
        TensorPlace { name, slice }
    }

    /// The name of a layer's tensor after the number of the layer.
    fn stem(&self, tensor: LayerTensor, fused: Option<&FusedTensor>) -> &'static str {
        let own = self.architecture.0.folder_names.iter().find(|(t, _)| *t == tensor);
        match (&self.style, fused) {
            (Style::Gguf, Some(fused)) => fused.gguf,
            (Style::Gguf, None) => tensor.gguf_name(),
            (Style::Folder { .. }, Some(fused)) => fused.folder,
            (Style::Folder { .. }, None) => own.map_or(tensor.folder_name(), |(_, name)| name),
        }
    }

    fn in_layer(&self, layer: usize, stem: &str) -> String {
        match &self.style {
            Style::Gguf => format!("blk.{layer}.{stem}"),
            Style::Folder { prefix } => format!("{prefix}layers.{layer}.{stem}"),
        }
    }

    /// The divisors of the rotary frequencies, which only GGUF files have.
    pub(crate) fn rope_factors(&self) -> Option<&'static str> {
        match self.style {
            Style::Gguf => Some("rope_freqs.weight"),
            Style::Folder { .. } => None,
        }
    }

    /// Names of tensors that a layer of this form must not have: those of other forms, and biases
    /// that no family has. A checkpoint with one would give wrong output without an error.
    pub(crate) fn unsupported(&self, form: &LayerForm, layer: usize) -> Vec<String> {
        let name = |tensor| self.layer(form, layer, tensor).name;
        let (absent, known): (Vec<_>, Vec<_>) =
            LayerTensor::all().partition(|tensor| tensor.presence(form) == Presence::Absent);
        let known: Vec<String> = known.into_iter().map(name).collect();
        let biases = known.iter().filter_map(|name| Some(format!("{}.bias", name.strip_suffix(".weight")?)));
        let absent = absent.into_iter().map(name).chain(biases);
        absent.filter(|name| !known.contains(name)).collect()
    }
}

/// The prefix of the module that holds the text model with this prefix: the head lies beside it.
fn outside(prefix: &str) -> &str {
    let outer = prefix.strip_suffix("model.").filter(|outer| outer.is_empty() || outer.ends_with('.'));
    outer.unwrap_or("")
}

/// The text model's prefix: multimodal checkpoints nest it.
fn text_prefix(checkpoint: &Checkpoint) -> String {
    const END: &str = "embed_tokens.weight";
    let found = checkpoint.tensors().find_map(|t| t.name.strip_suffix(END).map(str::to_owned));
    found.unwrap_or_else(|| "model.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::family::{Family, LLAMA};

    fn form() -> LayerForm {
        LayerForm { dim: 40, ffn_dim: 72, heads: 4, kv_heads: 2, head_dim: 10, ..LayerForm::default() }
    }

    fn layer_names(names: &TensorNames, form: &LayerForm) -> String {
        let known = LayerTensor::all().filter(|tensor| tensor.presence(form) != Presence::Absent);
        let names = known.map(|tensor| names.place(form, ModelTensor::Layer(7, tensor)).name);
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_are_those_of_llama_cpp_and_transformers() {
        let of = |name: &str| Architecture::named(name).expect("supported");
        let gemma = LayerForm { qk_norm: true, sandwich_norms: true, ..form() };
        assert_eq!(
            layer_names(&TensorNames::gguf(of("gemma3")), &gemma),
            "blk.7.attn_norm.weight blk.7.attn_q.weight blk.7.attn_k.weight blk.7.attn_v.weight \
             blk.7.attn_output.weight blk.7.attn_q.bias blk.7.attn_k.bias blk.7.attn_v.bias blk.7.attn_q_norm.weight \
             blk.7.attn_k_norm.weight blk.7.post_attention_norm.weight blk.7.ffn_norm.weight blk.7.ffn_gate.weight \
             blk.7.ffn_up.weight blk.7.ffn_down.weight blk.7.post_ffw_norm.weight"
        );
        assert_eq!(
            layer_names(&TensorNames::folder(of("gemma3"), "language_model.model."), &gemma)
                .replace("language_model.model.layers.7.", ""),
            "input_layernorm.weight self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight \
             self_attn.o_proj.weight self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias \
             self_attn.q_norm.weight self_attn.k_norm.weight post_attention_layernorm.weight \
             pre_feedforward_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight \
             post_feedforward_layernorm.weight"
        );
        assert_eq!(
            layer_names(&TensorNames::folder(of("llama"), "model."), &form()).replace("model.layers.7.", ""),
            "input_layernorm.weight self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight \
             self_attn.o_proj.weight self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias \
             post_attention_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight"
        );
        let head = |prefix| TensorNames::folder(of("llama"), prefix).place(&form(), ModelTensor::Head).name;
        assert_eq!(head("model."), "lm_head.weight");
        assert_eq!(head("language_model.model."), "language_model.lm_head.weight");
        assert_eq!(head("model.language_model."), "lm_head.weight");
    }

    #[test]
    fn fused_tensors_are_cut_into_the_rows_of_their_parts() {
        use LayerTensor as T;
        static PHI: Family = Family {
            fused: &[FusedTensor {
                gguf: "attn_qkv.weight",
                folder: "self_attn.qkv_proj.weight",
                parts: &[T::Query, T::Key, T::Value],
            }],
            ..LLAMA
        };
        let names = TensorNames::gguf(Architecture(&PHI));
        let place = |tensor| names.place(&form(), ModelTensor::Layer(3, tensor));
        let slice = |rows| Some(RowSlice { rows, of: 80 });
        let name = || "blk.3.attn_qkv.weight".to_owned();
        assert_eq!(place(T::Query), TensorPlace { name: name(), slice: slice(0..40) });
        assert_eq!(place(T::Key), TensorPlace { name: name(), slice: slice(40..60) });
        assert_eq!(place(T::Value), TensorPlace { name: name(), slice: slice(60..80) });
        assert_eq!(place(T::Gate), TensorPlace { name: "blk.3.ffn_gate.weight".to_owned(), slice: None });
    }

    #[test]
    fn what_a_layer_must_not_have_is_named() {
        let llama = Architecture::named("llama").expect("supported");
        for names in [TensorNames::gguf(llama), TensorNames::folder(llama, "model.")] {
            let refused = names.unsupported(&form(), 0);
            let known = layer_names(&names, &form()).replace(".7.", ".0.");
            assert!(refused.iter().all(|name| !known.split(' ').any(|k| k == name)), "{refused:?}");
            assert!(refused.iter().any(|name| name.contains("q_norm.weight")), "{refused:?}");
            for bias in ["o_proj.bias", "attn_output.bias"] {
                assert!(refused.iter().any(|n| n.ends_with(bias)) == known.contains(&bias.replace("bias", "weight")));
            }
        }
    }
}
