//! A model without its weights: what every device that runs it shares.

use selfspec_weights::Checkpoint;

use crate::arch::config::{ArchConfig, RopeScaling};
use crate::arch::tensor::ModelTensor;
use crate::error::ModelError;
use crate::load::checkpoint::{CheckpointTensors, model_tensors};
use crate::load::sink::{TensorSource, WeightSink, deliver};
use crate::rope::Rope;

/// A model without its weights, which lie where a device wants them.
#[derive(Debug)]
pub struct ModelSpec {
    config: ArchConfig,
    vocab: usize,
    tied: bool,
    rope: Rope,
    local_rope: Option<Rope>,
}

impl ModelSpec {
    /// Reads the model of `checkpoint` and hands each of its weights to `sink`.
    ///
    /// # Errors
    /// [`ModelError`] names the field or tensor that is missing, of the wrong shape, or not
    /// supported, and where it is.
    pub fn load(checkpoint: &Checkpoint, sink: &mut impl WeightSink<ModelTensor>) -> Result<ModelSpec, ModelError> {
        let config = ArchConfig::read(checkpoint)?;
        ModelSpec::load_as(config, checkpoint, sink).map_err(|e| e.located(checkpoint))
    }

    /// As [`ModelSpec::load`], of a checkpoint that has this configuration.
    pub(crate) fn load_as(
        config: ArchConfig,
        checkpoint: &Checkpoint,
        sink: &mut impl WeightSink<ModelTensor>,
    ) -> Result<ModelSpec, ModelError> {
        let tensors = CheckpointTensors::new(checkpoint, &config);
        let vocab = tensors.vocab(&config)?;
        tensors.check_layers(config.n_layers)?;
        let factors = tensors.rope_factors(config.rope_dims / 2)?;
        let tied = match config.tied {
            Some(tied) => tied,
            None => !tensors.has(ModelTensor::Head)?,
        };
        deliver(model_tensors(&config, vocab, tied), &tensors, sink)?;
        let rope = |base, scaling, factors: Option<&[f32]>| {
            Rope::new(base, config.rope_dims, scaling, factors, config.rope_style)
        };
        Ok(ModelSpec {
            vocab,
            tied,
            rope: rope(config.rope_base, config.rope_scaling, factors.as_deref()),
            local_rope: config.local.as_ref().map(|local| rope(local.rope_base, RopeScaling::None, None)),
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &ArchConfig {
        &self.config
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Whether the head is the embedding.
    pub fn tied(&self) -> bool {
        self.tied
    }

    /// The rotary frequencies of layers that see everything, and of exit heads.
    pub(crate) fn rope(&self) -> &Rope {
        &self.rope
    }

    /// The rotary frequencies of local layers, if the model has such layers.
    pub(crate) fn local_rope(&self) -> Option<&Rope> {
        self.local_rope.as_ref()
    }
}
