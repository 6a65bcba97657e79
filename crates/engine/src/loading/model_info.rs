//! Facts about a model, for people to read.

use std::path::Path;

use selfspec_kernels::KvType;
use selfspec_model::{ArchConfig, Backend};
use selfspec_weights::{Checkpoint, Source};

use crate::error::EngineError;

/// Facts about a model, read from its files without loading the weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// The name in its files, if they have one.
    pub name: Option<String>,
    /// Architecture, as GGUF names it: `llama`, `qwen2`, `qwen3`, `gemma3`.
    pub architecture: String,
    /// Number of layers N.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward layer.
    pub ffn_dim: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Context length that the model was trained for, in positions.
    pub context: usize,
    /// Numbers in all tensors.
    pub parameters: u64,
    /// The file's mix of tensor types, for example `Q4_K_M`, if the file names a known one.
    pub file_type: Option<&'static str>,
    /// Tensor types, those with the most bytes first.
    pub tensor_types: Vec<TensorTypeInfo>,
    /// Bytes of the weight files.
    pub file_bytes: u64,
    /// Bytes of the weights in memory.
    pub weight_bytes: u64,
    /// Whether the model has a chat template.
    pub chat_template: bool,
}

/// The tensors of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorTypeInfo {
    /// The type's name, for example `Q4_K`.
    pub name: String,
    /// Tensors of it.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl ModelInfo {
    /// Reads the headers of a model: a `.gguf` file or a Hugging Face folder.
    ///
    /// # Errors
    /// The files cannot be read, or are not a model of a supported architecture.
    pub fn read(path: &Path) -> Result<ModelInfo, EngineError> {
        ModelInfo::of_checkpoint(&Checkpoint::open(path)?)
    }

    pub(crate) fn of_checkpoint(checkpoint: &Checkpoint) -> Result<ModelInfo, EngineError> {
        let config = ArchConfig::read(checkpoint)?;
        let name = match checkpoint.source() {
            Source::Gguf(metadata) => metadata.str("general.name")?.map(str::to_owned),
            Source::HuggingFace { dir, config: json } => {
                let folder = dir.file_name().map(|name| name.to_string_lossy().into_owned());
                let name = json.get("_name_or_path").and_then(|name| name.as_str());
                name.filter(|n| !n.is_empty()).map(str::to_owned).or(folder)
            }
        };
        let file_type = match checkpoint.source() {
            // It is only shown, so a malformed one is left out.
            Source::Gguf(metadata) => metadata.u64("general.file_type").ok().flatten().and_then(file_type),
            Source::HuggingFace { .. } => None,
        };
        let chat_template = crate::loading::text_files::has_template(checkpoint.source())?;
        let mut tensor_types: Vec<TensorTypeInfo> = Vec::new();
        let mut parameters = 0u64;
        let mut vocab = config.vocab.unwrap_or(0);
        for tensor in checkpoint.tensors() {
            let numbers = tensor.shape.iter().fold(1u64, |n, d| n.saturating_mul(*d as u64));
            parameters = parameters.saturating_add(numbers);
            let bytes = (numbers / tensor.ty.block_len() as u64).saturating_mul(tensor.ty.block_bytes() as u64);
            if vocab == 0 && tensor.name.ends_with("embd.weight") {
                vocab = tensor.shape.first().copied().unwrap_or(0);
            }
            let name = tensor.ty.name();
            match tensor_types.iter_mut().find(|t| t.name == name) {
                Some(info) => {
                    info.tensors += 1;
                    info.bytes += bytes;
                }
                None => tensor_types.push(TensorTypeInfo { name: name.to_owned(), tensors: 1, bytes }),
            }
        }
        tensor_types.sort_by_key(|t| std::cmp::Reverse(t.bytes));
        Ok(ModelInfo {
            name,
            architecture: config.architecture.name().to_owned(),
            n_layers: config.n_layers,
            dim: config.dim,
            ffn_dim: config.ffn_dim,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            vocab,
            context: config.context,
            parameters,
            file_type,
            weight_bytes: tensor_types.iter().map(|t| t.bytes).sum(),
            tensor_types,
            file_bytes: checkpoint.size_bytes(),
            chat_template,
        })
    }

    /// The facts that a bare backend knows; the others are 0.
    pub(crate) fn of_backend(backend: &dyn Backend) -> ModelInfo {
        ModelInfo {
            name: None,
            architecture: "unnamed".to_owned(),
            n_layers: backend.n_layers(),
            dim: 0,
            ffn_dim: 0,
            heads: 0,
            kv_heads: 0,
            head_dim: 0,
            vocab: backend.vocab(),
            context: backend.context(),
            parameters: 0,
            file_type: None,
            tensor_types: Vec::new(),
            file_bytes: 0,
            weight_bytes: 0,
            chat_template: false,
        }
    }

    /// Bytes of K and V that one position takes over all layers in a cache of that type.
    pub fn kv_bytes_per_position(&self, kv_type: KvType) -> usize {
        self.n_layers * self.kv_heads * kv_type.head_bytes(self.head_dim)
    }

    /// Estimate of the memory for the weights and a KV cache of this many positions, in bytes.
    /// Buffers and the vocabulary need some tens of MiB more.
    pub fn memory_bytes(&self, kv_type: KvType, positions: usize) -> u64 {
        let position = self.kv_bytes_per_position(kv_type) as u64;
        self.weight_bytes.saturating_add(position.saturating_mul(positions as u64))
    }
}

/// `general.file_type` (`enum llama_ftype` of llama.cpp): the mixes of the tensor types that can be
/// run here.
fn file_type(id: u64) -> Option<&'static str> {
    Some(match id {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        21 => "Q2_K_S",
        32 => "BF16",
        _ => return None,
    })
}
