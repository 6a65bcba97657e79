//! Reads the configuration of a checkpoint of either kind.

use selfspec_weights::{Checkpoint, Source};

use super::config::ArchConfig;
use super::{folder, gguf};
use crate::error::ModelError;

impl ArchConfig {
    /// The configuration of a checkpoint.
    ///
    /// # Errors
    /// [`ModelError::Architecture`] for a family that is not supported; [`ModelError::Field`] names
    /// a missing or impossible value. Both with the place in the file.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let config = match checkpoint.source() {
            Source::Gguf(metadata) => gguf::read(metadata),
            Source::HuggingFace { config, .. } => folder::read(config),
        };
        config.map_err(|e| e.located(checkpoint))
    }
}
