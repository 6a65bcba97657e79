//! The result of a fetch.

use std::path::PathBuf;

/// A model that a source has put in place.
#[derive(Debug, Clone)]
pub(crate) struct FetchedModel {
    pub(crate) root: PathBuf, // what the engine opens: a file or a folder
    pub(crate) files: Vec<FetchedFile>,
    pub(crate) source: String,
}

/// A file of a fetched model.
#[derive(Debug, Clone)]
pub(crate) struct FetchedFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) sha256: Option<String>, // `None`: neither computed nor named by the source
}
