//! Opens checkpoints of either kind.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, OpenFile, Source};
use crate::error::WeightsError;
use crate::map::FileBytes;
use crate::{folder, gguf, shards};

impl Checkpoint {
    /// Opens a GGUF file (for a sharded model any of its shards, named `NAME-0000i-of-0000n.gguf`)
    /// or a Hugging Face folder.
    ///
    /// # Errors
    /// Every fault that [`WeightsError`] names. Everything is checked except the tensors' values.
    pub fn open(path: &Path) -> Result<Checkpoint, WeightsError> {
        let kind = std::fs::metadata(path).map_err(|source| WeightsError::Io {
            file: path.to_path_buf(),
            doing: "open",
            source,
        })?;
        if kind.is_dir() { folder::open(path) } else { shards::open(path) }
    }

    /// Reads a single GGUF file from memory; `name` stands for its path in errors.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_gguf_bytes(name: &Path, bytes: Vec<u8>) -> Result<Checkpoint, WeightsError> {
        if bytes.is_empty() {
            return Err(WeightsError::Empty { file: name.to_path_buf() });
        }
        let bytes = Arc::new(FileBytes::Held(bytes));
        let gguf = gguf::read(name, &bytes)?;
        let files = vec![OpenFile { path: name.to_path_buf(), bytes }];
        Checkpoint::new(name, Source::Gguf(gguf.metadata), files, gguf.tensors, HashMap::new())
    }

    /// Reads a single safetensors file and its `config.json` from memory; `name` stands for the
    /// file's path in errors.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_safetensors_bytes(name: &Path, bytes: Vec<u8>, config: &[u8]) -> Result<Checkpoint, WeightsError> {
        folder::from_bytes(name, bytes, config)
    }
}
