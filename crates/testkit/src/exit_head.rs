//! Random exit heads for tiny models, as files.

use std::collections::HashMap;

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use selfspec_model::{ArchConfig, ExitHeadCard};

use crate::random::Random;

/// An exit head to be: random weights that fit a model.
#[derive(Debug, Clone)]
pub struct TinyExitHead {
    /// What it says of itself.
    pub card: ExitHeadCard,
    /// The tokens that it can propose.
    pub vocab: Vec<u32>,
    /// What the weights are drawn from.
    pub seed: u64,
}

/// A tensor of a file.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

impl TinyExitHead {
    /// A head on `exit` layers of the model with this fingerprint, which also reads the states after these numbers of layers.
    pub fn new(fingerprint: &str, exit: usize, features: &[usize], vocab: Vec<u32>) -> Self {
        let card = ExitHeadCard {
            version: ExitHeadCard::VERSION,
            model: "tiny".to_owned(),
            model_fingerprint: fingerprint.to_owned(),
            exit_layer: exit,
            features: features.to_vec(),
            ffn_dim: 48,
            vocab: vocab.len(),
            ..ExitHeadCard::default()
        };
        TinyExitHead { card, vocab, seed: 5 }
    }

    /// The tensors by name, for a model of this configuration.
    pub fn tensors(&self, c: &ArchConfig) -> HashMap<String, Stored> {
        let mut tensors = HashMap::new();
        let random = |name: &str, len: usize, mean: f32, std: f32| Random::new(self.seed, name).normals(len, mean, std);
        let mut matrix = |name: &str, n: usize, k: usize| {
            let values = random(name, n * k, 0.0, 1.0 / (k as f32).sqrt());
            let values = values.into_iter().flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect();
            tensors.insert(name.to_owned(), (Dtype::BF16, vec![n, k], values));
        };
        let (q_dim, kv_dim) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let features = self.card.features.len();
        if features > 0 {
            matrix("fuse.weight", c.dim, (1 + features) * c.dim);
            matrix("fuse_guess.weight", c.dim, 2 * c.dim);
        }
        matrix("layer.query.weight", q_dim, c.dim);
        matrix("layer.key.weight", kv_dim, c.dim);
        matrix("layer.value.weight", kv_dim, c.dim);
        matrix("layer.attention_output.weight", c.dim, q_dim);
        let ffn = self.card.ffn_dim;
        if ffn > 0 {
            matrix("layer.gate.weight", ffn, c.dim);
            matrix("layer.up.weight", ffn, c.dim);
            matrix("layer.down.weight", c.dim, ffn);
        }
        let mut vector = |name: &str, len: usize, around: f32| {
            let values = random(name, len, around, 0.1).into_iter().flat_map(f32::to_le_bytes).collect();
            tensors.insert(name.to_owned(), (Dtype::F32, vec![len], values));
        };
        vector("output_norm.weight", c.dim, 1.0);
        vector("layer.attention_norm.weight", c.dim, 1.0);
        if features > 0 {
            vector("exit_norm.weight", c.dim, 1.0);
            vector("feature_norm.weight", features * c.dim, 1.0);
            vector("guess_norm.weight", c.dim, 1.0);
        }
        if ffn > 0 {
            vector("layer.ffn_norm.weight", c.dim, 1.0);
        }
        if c.qkv_bias {
            vector("layer.query.bias", q_dim, 0.0);
            vector("layer.key.bias", kv_dim, 0.0);
            vector("layer.value.bias", kv_dim, 0.0);
        }
        if c.qk_norm {
            vector("layer.query_norm.weight", c.head_dim, 1.0);
            vector("layer.key_norm.weight", c.head_dim, 1.0);
        }
        if c.sandwich_norms {
            vector("layer.post_attention_norm.weight", c.dim, 1.0);
            if ffn > 0 {
                vector("layer.post_ffn_norm.weight", c.dim, 1.0);
            }
        }
        let ids = self.vocab.iter().flat_map(|id| id.to_le_bytes()).collect();
        tensors.insert("draft_vocab".to_owned(), (Dtype::I32, vec![self.vocab.len()], ids));
        tensors
    }

    /// The file, for a model of this configuration.
    ///
    /// # Panics
    /// If the card cannot be written.
    pub fn bytes(&self, c: &ArchConfig) -> Vec<u8> {
        self.file(&self.tensors(c))
    }

    /// The file with these tensors, which a test may have broken.
    ///
    /// # Panics
    /// If a tensor's shape and data contradict each other.
    pub fn file(&self, tensors: &HashMap<String, Stored>) -> Vec<u8> {
        let views: HashMap<&str, TensorView<'_>> = tensors
            .iter()
            .map(|(name, (ty, shape, data))| {
                (name.as_str(), TensorView::new(*ty, shape.clone(), data).expect("shape and data agree"))
            })
            .collect();
        let card = serde_json::to_string(&self.card).expect("a card is plain data");
        let metadata = HashMap::from([(ExitHeadCard::KEY.to_owned(), card)]);
        safetensors::serialize(views, Some(metadata)).expect("plain data")
    }
}
