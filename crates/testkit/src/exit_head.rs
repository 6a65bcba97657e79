//! Random exit heads for tiny models, as files.

use std::collections::HashMap;

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use selfspec_model::{ArchConfig, ExitHeadCard, ExitHeadForm, ExitHeadTensor, LayerForm, Presence, TensorShape};

use crate::random::Random;

/// The description of an exit head whose random weights fit a model.
#[derive(Debug, Clone)]
pub struct TinyExitHead {
    /// Its card.
    pub card: ExitHeadCard,
    /// The tokens that it can propose.
    pub vocab: Vec<u32>,
    /// Seed of the weights.
    pub seed: u64,
}

/// A tensor of a file.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

impl TinyExitHead {
    /// A head on `exit` layers of the model with this fingerprint, which also reads the states
    /// after these numbers of layers.
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
        let layer = LayerForm { ffn_dim: self.card.ffn_dim, ..c.layer_form() };
        let form = ExitHeadForm { layer, features: self.card.features.len() };
        let needed = ExitHeadTensor::all().filter(|tensor| tensor.presence(&form) == Presence::Needed);
        let mut tensors: HashMap<String, Stored> = needed
            .map(|tensor| {
                let (name, shape) = (tensor.name(), tensor.shape(&form));
                let random = |mean, std| Random::new(self.seed, name).normals(shape.values(), mean, std);
                let floats = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect();
                let (ty, data) = match shape.matrix() {
                    Some((_, cols)) => {
                        let values = random(0.0, 1.0 / (cols as f32).sqrt()).into_iter();
                        (Dtype::BF16, values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect())
                    }
                    None => {
                        let mean = if matches!(shape, TensorShape::Norm(_)) { 1.0 } else { 0.0 };
                        (Dtype::F32, floats(random(mean, 0.1)))
                    }
                };
                (name.to_owned(), (ty, shape.dims(), data))
            })
            .collect();
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
