//! The manifest of a cached model.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fetched::{FetchedFile, FetchedModel};
use crate::name::ModelName;

/// A cached model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// Its name.
    pub name: String,
    /// Its file or folder.
    pub root: PathBuf,
    /// How it is stored.
    pub layout: ModelLayout,
    /// Bytes of all its files.
    pub bytes: u64,
    /// The source that it was fetched from.
    pub source: String,
    /// Whether every file exists with its size.
    pub complete: bool,
}

/// How a model is stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelLayout {
    /// A GGUF file, single or the first of its shards.
    Gguf,
    /// A folder in Hugging Face's layout.
    Folder,
}

/// The description of a fetched model, stored as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ModelManifest {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) root: PathBuf, // relative to the home when inside it
    pub(crate) files: Vec<ManifestFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ManifestFile {
    pub(crate) path: PathBuf, // relative to the home when inside it
    pub(crate) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
}

impl ModelManifest {
    pub(crate) fn new(name: &ModelName, fetched: &FetchedModel) -> Self {
        let file = |f: &FetchedFile| ManifestFile { path: f.path.clone(), bytes: f.bytes, sha256: f.sha256.clone() };
        ModelManifest {
            name: name.to_string(),
            source: fetched.source.clone(),
            root: fetched.root.clone(),
            files: fetched.files.iter().map(file).collect(),
        }
    }

    pub(super) fn map_paths(mut self, f: impl Fn(PathBuf) -> PathBuf) -> Self {
        self.root = f(self.root);
        for file in &mut self.files {
            file.path = f(std::mem::take(&mut file.path));
        }
        self
    }

    /// The first file that is missing or of another size, and the reason.
    pub(super) fn fault(&self) -> Option<(&Path, String)> {
        if self.files.is_empty() {
            return Some((&self.root, "the manifest lists no file".to_owned()));
        }
        self.files.iter().find_map(|f| match fs::metadata(&f.path) {
            Ok(m) if m.len() == f.bytes => None,
            Ok(m) => Some((&*f.path, format!("{} bytes, expected {}", m.len(), f.bytes))),
            Err(e) => Some((&*f.path, e.to_string())),
        })
    }
}
