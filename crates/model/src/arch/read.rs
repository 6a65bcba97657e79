//! Reads the configuration of a checkpoint of either kind.

use selfspec_weights::{Checkpoint, Source};
use serde_json::Value;

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
            Source::HuggingFace { config, .. } => ArchConfig::from_folder(config),
        };
        config.map_err(|e| e.located(checkpoint))
    }

    /// The configuration that a folder's `config.json` states.
    ///
    /// # Errors
    /// As [`ArchConfig::read`], without a place.
    pub fn from_folder(config: &Value) -> Result<Self, ModelError> {
        folder::read(config)
    }
}
