//! Tiny random models of every supported family, the same on every machine.
//!
//! The weights are drawn once, in the convention of Hugging Face folders, and written both ways: a
//! GGUF file has q and k of Llama permuted for interleaved rotation and 1 added to Gemma's norms; a
//! folder has them as drawn. Both must give the same logits. Scales are chosen so that logits are
//! spread, greedy text varies, and the layers' contributions fall off with depth, so that an early
//! exit is sometimes right and sometimes wrong.

use selfspec_model::{
    ArchConfig, Architecture, LayerForm, LayerTensor, ModelTensor, Presence, TensorNames, TensorShape,
};
use selfspec_weights::TensorType;
use serde_json::{Value as Json, json};

use crate::blocks::{dequantize, quantize};
use crate::folder::FolderBuilder;
use crate::gguf::GgufBuilder;
use crate::random::Random;
use crate::vocab::Vocab;

/// A model family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama: interleaved rotation in GGUF files.
    Llama,
    /// Qwen2: biases on q, k and v.
    Qwen2,
    /// Qwen3: norms on each head of q and k.
    Qwen3,
    /// Gemma 3: sandwich norms, norms on q and k, local and global attention, scaled embeddings.
    Gemma3,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 4] = [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma3];

    /// The name in GGUF files.
    pub fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Gemma3 => "gemma3",
        }
    }
}

/// How rotary frequencies are stretched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All by this factor.
    Linear(f32),
    /// Llama 3's way: a `rope_freqs.weight` tensor in a GGUF file, `rope_scaling` in a folder.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f32,
        /// Context length of the first training.
        original: usize,
    },
}

/// Divisors of Llama 3's wavelength bounds: below `original / HIGH` frequencies are kept, above
/// `original / LOW` divided.
const LOW: f32 = 1.0;
const HIGH: f32 = 4.0;

/// Sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Dims {
    pub layers: usize,
    pub dim: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub context: usize,
    /// Positions that a local layer sees (Gemma 3 only).
    pub window: usize,
}

impl Dims {
    /// The smallest sizes that leave remainders (widths that 16 does not divide, several groups of
    /// heads) and whose inner dimensions are whole blocks of `ty`.
    pub fn for_type(ty: TensorType) -> Dims {
        let dims = Dims { layers: 4, dim: 40, ffn: 72, heads: 4, kv_heads: 2, head_dim: 10, context: 512, window: 24 };
        match ty.block_len() {
            1 => dims,
            32 => Dims { dim: 96, ffn: 160, heads: 8, head_dim: 20, ..dims },
            _ => Dims { dim: 256, ffn: 256, heads: 8, head_dim: 32, ..dims },
        }
    }
}

/// The description of a tiny model.
#[derive(Debug, Clone)]
pub struct TinyModel {
    /// Its family.
    pub family: Family,
    /// Seed of the weights.
    pub seed: u64,
    /// Its sizes; those of [`Dims::for_type`] unless set.
    pub dims: Option<Dims>,
    /// Type of the matrices. Norms and biases are F32.
    pub ty: TensorType,
    /// Types of the matrices whose GGUF name contains the text, where they differ.
    pub types: Vec<(String, TensorType)>,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// How rotary frequencies are stretched.
    pub scaling: Scaling,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// By how much the contribution of each layer falls against that of the one before.
    pub decay: f32,
    /// The vocabulary.
    pub vocab: Vocab,
}

/// A weight in the convention of Hugging Face folders.
struct Weight {
    gguf: String,
    folder: String,
    tensor: ModelTensor,
    shape: TensorShape,
    values: Vec<f32>,
}

/// Mean and standard deviation of a tensor's values.
type Spread = (f32, f32);

impl TinyModel {
    /// A model of this family in F32: tied embeddings, 4 layers (Gemma: 7, the sixth with global
    /// attention).
    pub fn new(family: Family) -> TinyModel {
        let vocab = match family {
            Family::Gemma3 => Vocab { add_space_prefix: false, ..Vocab::sentence_piece() },
            _ => Vocab::byte_level(),
        };
        TinyModel {
            family,
            seed: 1,
            dims: None,
            ty: TensorType::F32,
            types: Vec::new(),
            tied: true,
            scaling: Scaling::None,
            rope_base: 10_000.0,
            decay: 0.7,
            vocab,
        }
    }

    /// Sets the type of the matrices.
    pub fn ty(self, ty: TensorType) -> Self {
        TinyModel { ty, ..self }
    }

    /// Sets the type of the matrices whose GGUF name contains `part`.
    pub fn type_of(mut self, part: &str, ty: TensorType) -> Self {
        self.types.push((part.to_owned(), ty));
        self
    }

    /// Sets the seed.
    pub fn seed(self, seed: u64) -> Self {
        TinyModel { seed, ..self }
    }

    /// Gives the model a head of its own.
    pub fn untied(self) -> Self {
        TinyModel { tied: false, ..self }
    }

    /// Stretches the rotary frequencies.
    pub fn scaling(self, scaling: Scaling) -> Self {
        TinyModel { scaling, ..self }
    }

    /// Sets the vocabulary.
    pub fn vocab(self, vocab: Vocab) -> Self {
        TinyModel { vocab, ..self }
    }

    /// Sets the number of layers.
    pub fn layers(self, layers: usize) -> Self {
        let dims = Dims { layers, ..self.dims() };
        TinyModel { dims: Some(dims), ..self }
    }

    /// Sets all sizes.
    pub fn with_dims(self, dims: Dims) -> Self {
        TinyModel { dims: Some(dims), ..self }
    }

    /// The sizes.
    pub fn dims(&self) -> Dims {
        self.dims.unwrap_or_else(|| {
            let widest =
                self.types.iter().map(|t| t.1).fold(self.ty, |a, b| if b.block_len() > a.block_len() { b } else { a });
            let dims = Dims::for_type(widest);
            if self.family == Family::Gemma3 { Dims { layers: 7, ..dims } } else { dims }
        })
    }

    fn type_for(&self, gguf_name: &str) -> TensorType {
        self.types.iter().rev().find(|(part, _)| gguf_name.contains(part.as_str())).map_or(self.ty, |(_, ty)| *ty)
    }

    /// The model as a GGUF file.
    pub fn gguf(&self) -> GgufBuilder {
        let (d, f) = (self.dims(), self.family.name());
        let key = |suffix: &str| format!("{f}.{suffix}");
        let mut out = GgufBuilder::new()
            .metadata("general.architecture", f)
            .metadata("general.name", format!("tiny {f} {}", self.seed))
            .metadata(&key("block_count"), d.layers as u32)
            .metadata(&key("context_length"), d.context as u32)
            .metadata(&key("embedding_length"), d.dim as u32)
            .metadata(&key("feed_forward_length"), d.ffn as u32)
            .metadata(&key("attention.head_count"), d.heads as u32)
            .metadata(&key("attention.head_count_kv"), d.kv_heads as u32)
            .metadata(&key("attention.key_length"), d.head_dim as u32)
            .metadata(&key("attention.value_length"), d.head_dim as u32)
            .metadata(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)
            .metadata(&key("rope.dimension_count"), d.head_dim as u32)
            .metadata(&key("rope.freq_base"), self.rope_base)
            .metadata(&key("vocab_size"), self.vocab.len() as u32);
        if self.family == Family::Gemma3 {
            out = out.metadata(&key("attention.sliding_window"), d.window as u32);
        }
        if let Scaling::Linear(factor) = self.scaling {
            out = out.metadata(&key("rope.scaling.type"), "linear").metadata(&key("rope.scaling.factor"), factor);
        }
        for (key, value) in self.vocab.metadata() {
            out = out.metadata(key, value);
        }
        for w in self.weights() {
            let heads = match w.tensor {
                ModelTensor::Layer(_, LayerTensor::Query) => Some(d.heads),
                ModelTensor::Layer(_, LayerTensor::Key) => Some(d.kv_heads),
                _ => None,
            };
            let values = match (w.shape, heads) {
                (shape, Some(heads)) if self.family == Family::Llama => interleave(&w.values, heads, shape.rows()),
                (TensorShape::Norm(_), _) if self.family == Family::Gemma3 => {
                    w.values.iter().map(|v| v + 1.0).collect()
                }
                _ => w.values,
            };
            let ty = if w.shape.matrix().is_some() { self.type_for(&w.gguf) } else { TensorType::F32 };
            out = out.tensor(&w.gguf, &w.shape.dims(), ty, &values);
        }
        if let Scaling::Llama3 { factor, original } = self.scaling {
            let factors = self.llama3_factors(factor, original);
            out = out.tensor("rope_freqs.weight", &[factors.len()], TensorType::F32, &factors);
        }
        out
    }

    /// The same model as a Hugging Face folder, with a tokenizer. Matrices of a type that folders
    /// lack are written in F32, with the values that the GGUF file's blocks stand for.
    pub fn folder(&self) -> FolderBuilder {
        let mut out = FolderBuilder::new(self.config());
        for w in self.weights() {
            let ty = if w.shape.matrix().is_some() { self.type_for(&w.gguf) } else { TensorType::F32 };
            let dims = w.shape.dims();
            out = match ty.block_len() {
                1 => out.tensor(&w.folder, &dims, ty, &w.values),
                _ => out.tensor(&w.folder, &dims, TensorType::F32, &dequantize(ty, &quantize(ty, &w.values))),
            };
        }
        out.files.insert("tokenizer.json".to_owned(), self.vocab.tokenizer_json());
        out.files.insert("tokenizer_config.json".to_owned(), self.vocab.tokenizer_config_json());
        out
    }

    fn config(&self) -> Json {
        let d = self.dims();
        let (class, model_type) = match self.family {
            Family::Llama => ("LlamaForCausalLM", "llama"),
            Family::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
            Family::Qwen3 => ("Qwen3ForCausalLM", "qwen3"),
            Family::Gemma3 => ("Gemma3ForCausalLM", "gemma3_text"),
        };
        let mut out = json!({
            "architectures": [class], "model_type": model_type, "hidden_size": d.dim, "intermediate_size": d.ffn,
            "num_hidden_layers": d.layers, "num_attention_heads": d.heads, "num_key_value_heads": d.kv_heads,
            "head_dim": d.head_dim, "max_position_embeddings": d.context, "rms_norm_eps": 1e-6,
            "rope_theta": self.rope_base, "tie_word_embeddings": self.tied, "vocab_size": self.vocab.len(),
            "bos_token_id": self.vocab.bos, "eos_token_id": self.vocab.eos, "torch_dtype": "float32",
        });
        if self.family == Family::Gemma3 {
            out["hidden_activation"] = "gelu_pytorch_tanh".into();
            out["query_pre_attn_scalar"] = d.head_dim.into();
            out["sliding_window"] = d.window.into();
            out["sliding_window_pattern"] = 6.into();
            out["rope_local_base_freq"] = 10_000.0.into();
        } else {
            out["hidden_act"] = "silu".into();
        }
        match self.scaling {
            Scaling::None => {}
            Scaling::Linear(factor) => out["rope_scaling"] = json!({"rope_type": "linear", "factor": factor}),
            Scaling::Llama3 { factor, original } => {
                out["rope_scaling"] = json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": LOW,
                    "high_freq_factor": HIGH, "original_max_position_embeddings": original});
            }
        }
        out
    }

    /// The contents of `rope_freqs.weight` as a converter writes it: the divisor of each frequency.
    /// Shape: (rotated pair).
    fn llama3_factors(&self, factor: f32, original: usize) -> Vec<f32> {
        let half = self.dims().head_dim / 2;
        (0..half)
            .map(|i| {
                let wavelength = std::f32::consts::TAU * self.rope_base.powf(i as f32 / half as f32);
                let turns = original as f32 / wavelength; // full turns within the first training's context
                if turns > HIGH {
                    1.0
                } else if turns < LOW {
                    factor
                } else {
                    let keep = (turns - LOW) / (HIGH - LOW);
                    1.0 / ((1.0 - keep) / factor + keep)
                }
            })
            .collect()
    }

    /// The form of its layers.
    fn form(&self) -> LayerForm {
        ArchConfig::from_folder(&self.config()).expect("a tiny model has a sound configuration").layer_form()
    }

    /// All weights, each drawn from a stream of its own.
    fn weights(&self) -> Vec<Weight> {
        let (d, form) = (self.dims(), self.form());
        let architecture = Architecture::named(self.family.name()).expect("every family is supported");
        let (gguf, folder) = (TensorNames::gguf(architecture), TensorNames::folder(architecture, "model."));
        let weight = |tensor: ModelTensor, shape: TensorShape, (mean, std): Spread| {
            let name = gguf.place(&form, tensor).name;
            // Folders of Gemma store norms less 1.
            let stored_less_one = self.family == Family::Gemma3 && matches!(shape, TensorShape::Norm(_));
            let mean = if stored_less_one { mean - 1.0 } else { mean };
            let values = Random::new(self.seed, &name).normals(shape.values(), mean, std);
            Weight { folder: folder.place(&form, tensor).name, gguf: name, tensor, shape, values }
        };
        // With final norms of about 1, logits have this standard deviation.
        let embedding = 2.0 / (d.dim as f32).sqrt();
        let whole = TensorShape::Matrix { rows: self.vocab.len(), cols: d.dim };
        let mut out = vec![weight(ModelTensor::Embedding, whole, (0.0, embedding))];
        for l in 0..d.layers {
            for tensor in LayerTensor::all().filter(|tensor| tensor.presence(&form) == Presence::Needed) {
                let shape = tensor.shape(&form);
                out.push(weight(ModelTensor::Layer(l, tensor), shape, self.spread(l, tensor, shape)));
            }
        }
        out.push(weight(ModelTensor::OutputNorm, TensorShape::Norm(d.dim), (1.0, 0.1)));
        if !self.tied {
            out.push(weight(ModelTensor::Head, whole, (0.0, embedding)));
        }
        out
    }

    /// How the values of a tensor of layer `l` are drawn.
    fn spread(&self, l: usize, tensor: LayerTensor, shape: TensorShape) -> Spread {
        let (d, gemma) = (self.dims(), self.family == Family::Gemma3);
        let dim = d.dim as f32;
        let embedding = 2.0 / dim.sqrt();
        // The residual stream ends about this many times as large as the embedding it began with:
        // less, and a tied head would answer every token with itself.
        let growth = dim.sqrt();
        let total: f32 = (0..d.layers).map(|l| self.decay.powi(2 * l as i32)).sum::<f32>() * 2.0;
        let start = embedding * if gemma { dim.sqrt() } else { 1.0 };
        let part = start * growth * self.decay.powi(l as i32) / total.sqrt();
        // With sandwich norms the norm sets the size of a layer's part, else the output matrix
        // does.
        let (attention_out, ffn_out) = if gemma { (1.0, 1.0) } else { (part / 0.7, part / 0.5) };
        let unit = 1.0 / dim.sqrt();
        let cols = shape.matrix().map_or(1, |(_, cols)| cols) as f32;
        match (tensor, shape) {
            (LayerTensor::Query | LayerTensor::Key, _) => (0.0, 1.5 * unit),
            (LayerTensor::AttentionOutput, _) => (0.0, attention_out / cols.sqrt()),
            (LayerTensor::Gate, _) => (0.0, 1.2 * unit),
            (LayerTensor::Down, _) => (0.0, ffn_out / cols.sqrt()),
            (LayerTensor::ValueBias, _) => (0.0, 0.2),
            (LayerTensor::QueryNorm | LayerTensor::KeyNorm, _) => (1.5, 0.2),
            (LayerTensor::PostAttentionNorm | LayerTensor::PostFeedForwardNorm, _) => (part, 0.1 * part),
            (_, TensorShape::Norm(_)) => (1.0, 0.1),
            (_, TensorShape::Bias(_)) => (0.0, 0.5),
            _ => (0.0, unit),
        }
    }
}

/// Reorders the rows of each head from halves (value i is rotated with i + half) to neighbours, as
/// converters do for Llama.
fn interleave(values: &[f32], heads: usize, rows: usize) -> Vec<f32> {
    let (width, head) = (values.len() / rows, rows / heads);
    let mut out = Vec::with_capacity(values.len());
    for h in 0..heads {
        for i in 0..head {
            let row = h * head + i % 2 * (head / 2) + i / 2;
            out.extend(&values[row * width..][..width]);
        }
    }
    out
}
