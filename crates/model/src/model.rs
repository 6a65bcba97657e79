//! A model in memory: its configuration and its weights, packed for the kernels.

use half::{bf16, f16};
use selfspec_kernels::{PanelMatrix, Team, WeightFormat};
use selfspec_weights::{Checkpoint, Tensor, TensorType};

use crate::arch::config::{ArchConfig, RopeScaling};
use crate::arch::names::{LayerTensor, Names};
use crate::error::ModelError;
use crate::plan::LayerPlan;
use crate::profile::Part;
use crate::rope::Rope;

/// The weights of one layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,              // (dim)
    pub(crate) query: PanelMatrix,                    // (heads * head_dim, dim)
    pub(crate) key: PanelMatrix,                      // (kv_heads * head_dim, dim)
    pub(crate) value: PanelMatrix,                    // (kv_heads * head_dim, dim)
    pub(crate) attention_output: PanelMatrix,         // (dim, heads * head_dim)
    pub(crate) query_bias: Option<Vec<f32>>,          // (heads * head_dim)
    pub(crate) key_bias: Option<Vec<f32>>,            // (kv_heads * head_dim)
    pub(crate) value_bias: Option<Vec<f32>>,          // (kv_heads * head_dim)
    pub(crate) query_norm: Option<Vec<f32>>,          // (head_dim)
    pub(crate) key_norm: Option<Vec<f32>>,            // (head_dim)
    pub(crate) post_attention_norm: Option<Vec<f32>>, // (dim)
    pub(crate) ffn: Option<FeedForward>,              // every layer of a model has one
    pub(crate) window: Option<usize>,                 // positions that it sees, its own included; None: all
}

/// The gated feed-forward part of a layer.
#[derive(Debug)]
pub(crate) struct FeedForward {
    pub(crate) norm: Vec<f32>,              // (dim)
    pub(crate) gate: PanelMatrix,           // (ffn_dim, dim)
    pub(crate) up: PanelMatrix,             // (ffn_dim, dim)
    pub(crate) down: PanelMatrix,           // (dim, ffn_dim)
    pub(crate) post_norm: Option<Vec<f32>>, // (dim)
}

impl Layer {
    fn ffn(&self) -> impl Iterator<Item = &FeedForward> {
        self.ffn.iter()
    }

    /// First position that a row at `pos` sees.
    pub(crate) fn first_visible(&self, pos: usize) -> usize {
        self.window.map_or(0, |window| (pos + 1).saturating_sub(window))
    }

    pub(crate) fn bytes(&self) -> usize {
        let attention = [&self.query, &self.key, &self.value, &self.attention_output];
        let ffn = self.ffn().flat_map(|f| [&f.gate, &f.up, &f.down]);
        attention.into_iter().chain(ffn).map(|m| m.size_bytes()).sum()
    }
}

/// A model in memory. Shared by every backend that runs it; never changed.
#[derive(Debug)]
pub struct Model {
    pub(crate) config: ArchConfig,
    pub(crate) embedding: PanelMatrix,    // (vocab, dim)
    pub(crate) head: Option<PanelMatrix>, // (vocab, dim); the embedding where the two are tied
    pub(crate) output_norm: Vec<f32>,     // (dim)
    pub(crate) layers: Vec<Layer>,
    pub(crate) rope: Rope,
    pub(crate) local_rope: Option<Rope>,
}

impl Model {
    /// Reads and packs every weight of `checkpoint`. Pages of the file are given back as soon as a tensor is packed, so that
    /// resident memory stays near the size of the file.
    ///
    /// # Errors
    /// [`ModelError`] names the field or tensor that is missing, of the wrong shape, or not supported, and where it is.
    pub fn open(checkpoint: &Checkpoint, team: &Team) -> Result<Model, ModelError> {
        Model::load(checkpoint, team, true)
    }

    /// Checks what [`Model::open`] does, but packs only the first row of each matrix: little is read, and little memory taken.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn check(checkpoint: &Checkpoint) -> Result<(), ModelError> {
        Model::load(checkpoint, &Team::new(1), false).map(drop)
    }

    fn load(checkpoint: &Checkpoint, team: &Team, whole: bool) -> Result<Model, ModelError> {
        let config = ArchConfig::read(checkpoint)?;
        let names = Names::of(checkpoint, &config);
        Loader { checkpoint, team, whole, names, config }.model().map_err(|e| e.located(checkpoint))
    }

    /// What the forward pass knows of the architecture.
    pub fn config(&self) -> &ArchConfig {
        &self.config
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.embedding.n()
    }

    /// Bytes of weights that a pass over one plan streams: its layers and the head. The embedding's single rows are not counted.
    pub fn pass_bytes(&self, plan: &LayerPlan) -> usize {
        let layers: usize =
            self.layers.iter().enumerate().filter(|(l, _)| plan.runs(*l)).map(|(_, layer)| layer.bytes()).sum();
        layers + self.head().size_bytes()
    }

    /// Bytes of weights that one part of a full pass streams.
    pub fn part_bytes(&self, part: Part) -> usize {
        let over_layers = |of: fn(&Layer) -> Vec<&PanelMatrix>| -> usize {
            self.layers.iter().flat_map(of).map(PanelMatrix::size_bytes).sum()
        };
        match part {
            Part::QueryKeyValue => over_layers(|l| vec![&l.query, &l.key, &l.value]),
            Part::AttentionOutput => over_layers(|l| vec![&l.attention_output]),
            Part::Gate => over_layers(|l| l.ffn().flat_map(|f| [&f.gate, &f.up]).collect()),
            Part::Down => over_layers(|l| l.ffn().map(|f| &f.down).collect()),
            Part::Head => self.head().size_bytes(),
            _ => 0,
        }
    }

    /// Bytes of all packed weights.
    pub fn weight_bytes(&self) -> usize {
        self.pass_bytes(&LayerPlan::full(self.config.n_layers))
            + self.head.as_ref().map_or(0, |_| self.embedding.size_bytes())
    }

    pub(crate) fn head(&self) -> &PanelMatrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    team: &'a Team,
    whole: bool, // else only the first row of each matrix is packed, for a check
    names: Names,
    config: ArchConfig,
}

impl Loader<'_> {
    fn model(self) -> Result<Model, ModelError> {
        let c = &self.config;
        let embedding_name = self.names.embedding();
        let embedding_shape = self.tensor(&embedding_name)?.info.shape.clone();
        let vocab = match embedding_shape[..] {
            [vocab, dim] if dim == c.dim && c.vocab.is_none_or(|v| v == vocab) => vocab,
            _ => {
                let expected = vec![c.vocab.or(embedding_shape.first().copied()).unwrap_or(0), c.dim];
                return Err(ModelError::Shape { tensor: embedding_name, expected, got: embedding_shape });
            }
        };
        // Before anything is packed, so that a wrong layer count costs no memory.
        for layer in 0..c.n_layers {
            self.tensor(&self.names.layer(layer, LayerTensor::AttentionNorm))?;
            for name in self.names.unsupported_biases(layer) {
                if self.checkpoint.tensor(&name)?.is_some() {
                    return Err(ModelError::UnsupportedTensor(name));
                }
            }
        }
        let extra = self.names.layer(c.n_layers, LayerTensor::AttentionNorm);
        if self.checkpoint.tensor(&extra)?.is_some() {
            return Err(ModelError::UnsupportedTensor(extra));
        }
        let factors = match self.names.rope_factors() {
            Some(name) if self.checkpoint.tensor(name)?.is_some() => Some(self.rope_factors(name)?),
            _ => None,
        };
        let rope =
            |base, scaling, factors: Option<&[f32]>| Rope::new(base, c.rope_dims, scaling, factors, c.rope_style);
        let head_name = self.names.head();
        let own_head = match c.tied {
            Some(tied) => !tied,
            None => self.checkpoint.tensor(&head_name)?.is_some(),
        };
        let head = if own_head { Some(self.matrix(&head_name, vocab, c.dim)?) } else { None };
        Ok(Model {
            embedding: self.matrix(&embedding_name, vocab, c.dim)?,
            head,
            output_norm: self.norm(&self.names.output_norm(), c.dim)?,
            layers: (0..c.n_layers).map(|l| self.layer(l)).collect::<Result<_, _>>()?,
            rope: rope(c.rope_base, c.rope_scaling, factors.as_deref()),
            local_rope: c.local.as_ref().map(|local| rope(local.rope_base, RopeScaling::None, None)),
            config: self.config.clone(),
        })
    }

    fn layer(&self, l: usize) -> Result<Layer, ModelError> {
        use LayerTensor as T;
        let c = &self.config;
        let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let name = |tensor: T| self.names.layer(l, tensor);
        let matrix = |tensor: T, n: usize, k: usize| self.matrix(&name(tensor), n, k);
        let norm = |tensor: T, len: usize| self.norm(&name(tensor), len);
        let norm_if = |wanted: bool, tensor: T, len: usize| if wanted { norm(tensor, len).map(Some) } else { Ok(None) };
        let bias = |tensor: T, len: usize| match self.checkpoint.tensor(&name(tensor))? {
            None if !c.qkv_bias => Ok(None),
            _ => self.vector(&name(tensor), len).map(Some),
        };
        Ok(Layer {
            attention_norm: norm(T::AttentionNorm, c.dim)?,
            query: matrix(T::Query, q_dim, c.dim)?,
            key: matrix(T::Key, kv_dim, c.dim)?,
            value: matrix(T::Value, kv_dim, c.dim)?,
            attention_output: matrix(T::AttentionOutput, c.dim, q_dim)?,
            query_bias: bias(T::QueryBias, q_dim)?,
            key_bias: bias(T::KeyBias, kv_dim)?,
            value_bias: bias(T::ValueBias, kv_dim)?,
            query_norm: norm_if(c.qk_norm, T::QueryNorm, c.head_dim)?,
            key_norm: norm_if(c.qk_norm, T::KeyNorm, c.head_dim)?,
            post_attention_norm: norm_if(c.sandwich_norms, T::PostAttentionNorm, c.dim)?,
            ffn: Some(FeedForward {
                norm: norm(T::FeedForwardNorm, c.dim)?,
                gate: matrix(T::Gate, c.ffn_dim, c.dim)?,
                up: matrix(T::Up, c.ffn_dim, c.dim)?,
                down: matrix(T::Down, c.dim, c.ffn_dim)?,
                post_norm: norm_if(c.sandwich_norms, T::PostFeedForwardNorm, c.dim)?,
            }),
            window: c.local.as_ref().filter(|local| local.layers[l]).map(|local| local.window),
        })
    }

    fn tensor(&self, name: &str) -> Result<Tensor<'_>, ModelError> {
        self.checkpoint.tensor(name)?.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))
    }

    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<PanelMatrix, ModelError> {
        let tensor = self.tensor(name)?;
        if tensor.info.shape != [n, k] {
            let got = tensor.info.shape.clone();
            return Err(ModelError::Shape { tensor: name.to_owned(), expected: vec![n, k], got });
        }
        let (rows, bytes) = if self.whole { (n, tensor.bytes) } else { (n.min(1), first_of(n, tensor.bytes)) };
        let packed = PanelMatrix::pack(self.team, format(tensor.info.ty), rows, k, bytes)
            .map_err(|source| ModelError::Kernel { tensor: name.to_owned(), source })?;
        self.checkpoint.release(name);
        Ok(packed)
    }

    fn norm(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let mut weight = self.vector(name, len)?;
        weight.iter_mut().for_each(|w| *w += self.config.norm_offset);
        Ok(weight)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name)?;
        if tensor.info.shape != [len] {
            let got = tensor.info.shape.clone();
            return Err(ModelError::Shape { tensor: name.to_owned(), expected: vec![len], got });
        }
        let halves = tensor.bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        match tensor.info.ty {
            TensorType::F32 => {
                Ok(tensor.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            TensorType::F16 => Ok(halves.map(|b| f16::from_le_bytes(b).to_f32()).collect()),
            TensorType::Bf16 => Ok(halves.map(|b| bf16::from_le_bytes(b).to_f32()).collect()),
            other => Err(ModelError::VectorType { tensor: name.to_owned(), got: other.to_string() }),
        }
    }

    fn rope_factors(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let factors = self.vector(name, self.config.rope_dims / 2)?;
        match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
            Some(bad) => Err(ModelError::field(name, format!("{bad} is not a positive number"))),
            None => Ok(factors),
        }
    }
}

/// The bytes of the first of `n` rows.
fn first_of(n: usize, bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() / n.max(1)]
}

fn format(ty: TensorType) -> WeightFormat {
    match ty {
        TensorType::F32 => WeightFormat::F32,
        TensorType::F16 => WeightFormat::F16,
        TensorType::Bf16 => WeightFormat::Bf16,
        TensorType::Q4_0 => WeightFormat::Q4_0,
        TensorType::Q4_1 => WeightFormat::Q4_1,
        TensorType::Q5_0 => WeightFormat::Q5_0,
        TensorType::Q5_1 => WeightFormat::Q5_1,
        TensorType::Q8_0 => WeightFormat::Q8_0,
        TensorType::Q2K => WeightFormat::Q2K,
        TensorType::Q3K => WeightFormat::Q3K,
        TensorType::Q4K => WeightFormat::Q4K,
        TensorType::Q5K => WeightFormat::Q5K,
        TensorType::Q6K => WeightFormat::Q6K,
    }
}
