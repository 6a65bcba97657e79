//! A checkpoint: its source of configuration, and its tensors by name.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{FilePlace, WeightsError, one_line};
use crate::map::FileBytes;
use crate::metadata::Metadata;
use crate::types::TensorType;

/// A tensor's name, shape and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The dimensions, outermost first: a matrix is (rows, cols). No dimension is 0.
    pub shape: Vec<usize>,
    /// The format of its numbers.
    pub ty: TensorType,
}

impl TensorInfo {
    /// Number of values.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of its data.
    pub fn size_bytes(&self) -> usize {
        self.values() / self.ty.block_len() * self.ty.block_bytes()
    }
}

/// A tensor and its bytes.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, shape and type.
    pub info: &'a TensorInfo,
    /// The data as it lies in the file, little-endian, row by row. It may lie at any address:
    /// nothing is aligned.
    pub bytes: &'a [u8],
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor").field("info", self.info).field("bytes", &self.bytes.len()).finish()
    }
}

/// Where a model's configuration is from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A GGUF file, or the first shard of several.
    Gguf(Metadata),
    /// A Hugging Face folder.
    HuggingFace {
        /// The folder, with `tokenizer.json` and its like.
        dir: PathBuf,
        /// Its `config.json`: always an object.
        config: serde_json::Value,
    },
}

/// A tensor and where its data lies.
pub(crate) struct Stored {
    pub(crate) info: TensorInfo,
    pub(crate) file: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A tensor of a type that cannot be run, which is a fault only when it is asked for.
pub(crate) struct Unsupported {
    pub(crate) at: FilePlace,
    pub(crate) ty: String,
}

/// One file of a checkpoint.
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Arc<FileBytes>,
}

/// A model's tensors and configuration, mapped from files.
pub struct Checkpoint {
    path: PathBuf,
    source: Source,
    files: Vec<OpenFile>,
    tensors: Vec<Stored>,
    index: HashMap<String, usize>, // name -> tensor
    unsupported: HashMap<String, Unsupported>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("path", &self.path).field("tensors", &self.tensors.len()).finish()
    }
}

impl Checkpoint {
    /// Puts a checkpoint together. A name that occurs in two files is an error.
    pub(crate) fn new(
        path: &Path,
        source: Source,
        files: Vec<OpenFile>,
        tensors: Vec<Stored>,
        unsupported: HashMap<String, Unsupported>,
    ) -> Result<Checkpoint, WeightsError> {
        let mut index = HashMap::with_capacity(tensors.len());
        for (i, t) in tensors.iter().enumerate() {
            if index.insert(t.info.name.clone(), i).is_some() || unsupported.contains_key(&t.info.name) {
                let at = FilePlace::new(&files[t.file].path, format_args!("tensor {}", t.info.name), t.start as u64);
                return Err(WeightsError::DuplicateTensor { at });
            }
        }
        Ok(Checkpoint { path: path.to_path_buf(), source, files, tensors, index, unsupported })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the configuration is from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// All tensors of supported types, in the order of the files.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter().map(|t| &t.info)
    }

    /// The tensor of this name, or `None` if there is none.
    ///
    /// # Errors
    /// [`WeightsError::UnsupportedType`] for a tensor of a safetensors file whose type cannot be
    /// run.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, WeightsError> {
        if let Some(Unsupported { at, ty }) = self.unsupported.get(name) {
            return Err(WeightsError::UnsupportedType { at: at.clone(), ty: ty.clone() });
        }
        let Some(t) = self.index.get(name).map(|i| &self.tensors[*i]) else { return Ok(None) };
        Ok(Some(Tensor { info: &t.info, bytes: &self.files[t.file].bytes[t.start..][..t.len] }))
    }

    /// The tensor of this name, which must be there.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], and those of [`Checkpoint::tensor`].
    pub fn need_tensor(&self, name: &str) -> Result<Tensor<'_>, WeightsError> {
        self.tensor(name)?.ok_or_else(|| WeightsError::MissingTensor { file: self.path.clone(), name: one_line(name) })
    }

    /// Where the data of a tensor lies, for errors about its shape or values. `None` if there is no
    /// such tensor.
    pub fn at(&self, name: &str) -> Option<FilePlace> {
        let t = &self.tensors[*self.index.get(name)?];
        Some(FilePlace::new(&self.files[t.file].path, format_args!("tensor {name}"), t.start as u64))
    }

    /// Drops the resident pages of a tensor whose data has been copied. A later read of it, or of a
    /// neighbour on the same page, reads the file again.
    pub fn release(&self, name: &str) {
        if let Some(t) = self.index.get(name).map(|i| &self.tensors[*i]) {
            self.files[t.file].bytes.release(t.start, t.len);
        }
    }

    /// Bytes of all files of tensors.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes.len() as u64).sum()
    }

    /// The files of tensors, shards in order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(|f| f.path.as_path())
    }
}
