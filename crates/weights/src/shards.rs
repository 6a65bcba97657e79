//! GGUF models of one or several files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, OpenFile, Source};
use crate::error::WeightsError;
use crate::gguf;
use crate::map::FileBytes;

/// Opens a GGUF file.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, WeightsError> {
    let bytes = Arc::new(FileBytes::map(path)?);
    let gguf = gguf::read(path, &bytes)?;
    let files = vec![OpenFile { path: path.to_path_buf(), bytes }];
    Checkpoint::new(path, Source::Gguf(gguf.metadata), files, gguf.tensors, HashMap::new())
}
