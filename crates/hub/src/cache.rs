//! The cache: manifests, locks and the paths of files.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::name::ModelName;
use crate::{Event, Fetched, FetchedFile, HubError, Progress, digest};

/// A model that the cache holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The name that it is resolved by.
    pub name: String,
    /// The file or folder.
    pub root: PathBuf,
    /// What kind of model it is.
    pub kind: Kind,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Where it came from.
    pub source: String,
    /// Whether every file is there in its size.
    pub complete: bool,
}

/// Layout of a model on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A GGUF file, single or the first of its shards.
    Gguf,
    /// A folder in Hugging Face's layout.
    Folder,
}

/// What is noted of a fetched model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
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

impl Manifest {
    pub(crate) fn new(name: &ModelName, fetched: &Fetched) -> Self {
        let file = |f: &FetchedFile| ManifestFile { path: f.path.clone(), bytes: f.bytes, sha256: f.sha256.clone() };
        Manifest {
            name: name.to_string(),
            source: fetched.source.clone(),
            root: fetched.root.clone(),
            files: fetched.files.iter().map(file).collect(),
        }
    }

    fn map_paths(mut self, f: impl Fn(PathBuf) -> PathBuf) -> Self {
        self.root = f(self.root);
        for file in &mut self.files {
            file.path = f(std::mem::take(&mut file.path));
        }
        self
    }

    /// The first file that is missing or of another size, with the reason.
    fn fault(&self) -> Option<(&Path, String)> {
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

/// The folder that selfspec keeps its models in.
#[derive(Debug)]
pub(crate) struct Cache<'a> {
    home: &'a Path,
}

/// A name as a file name: unique, and readable.
pub(crate) fn key(name: &ModelName) -> String {
    if let ModelName::Alias(alias) = name {
        return alias.name.to_owned();
    }
    let text = name.to_string();
    let readable: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' }).take(80).collect();
    let mut hash = digest::Hashing::new(io::sink());
    let sha256 = hash.write_all(text.as_bytes()).and_then(|()| hash.finish()).map(|(_, sha256)| sha256);
    format!("{readable}-{}", &sha256.expect("hashing memory cannot fail")[..12])
}

impl<'a> Cache<'a> {
    pub(crate) fn new(home: &'a Path) -> Self {
        Cache { home }
    }

    fn manifest_path(&self, key: &str) -> PathBuf {
        self.home.join("manifests").join(format!("{key}.json"))
    }

    /// The folder of a name's files, made if it is not there.
    pub(crate) fn model_dir(&self, key: &str) -> Result<PathBuf, HubError> {
        make_dir(self.home.join("models").join(key))
    }

    /// An empty scratch folder for a name; what an earlier, interrupted fetch left in it is gone.
    pub(crate) fn fresh_tmp(&self, key: &str) -> Result<PathBuf, HubError> {
        self.clear_tmp(key);
        make_dir(self.home.join("tmp").join(key))
    }

    /// Removes a name's scratch folder.
    pub(crate) fn clear_tmp(&self, key: &str) {
        let dir = self.home.join("tmp").join(key);
        if let Err(error) = fs::remove_dir_all(&dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", dir.display());
        }
    }

    /// The manifest of a name whose files are all there in their sizes.
    pub(crate) fn complete(&self, key: &str, name: &ModelName) -> Result<Option<Manifest>, HubError> {
        let Some(manifest) = self.read(&self.manifest_path(key))? else { return Ok(None) };
        if manifest.name != name.to_string() {
            return Ok(None);
        }
        if let Some((path, why)) = manifest.fault() {
            tracing::warn!("cached {} is not used: {}: {why}", manifest.name, path.display());
            return Ok(None);
        }
        Ok(Some(manifest))
    }

    fn read(&self, path: &Path) -> Result<Option<Manifest>, HubError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(HubError::io("read", path, e)),
        };
        match serde_json::from_slice::<Manifest>(&text) {
            Ok(manifest) => Ok(Some(manifest.map_paths(|p| self.home.join(p)))),
            Err(error) => {
                tracing::warn!("{} is not a manifest and is not used: {error}", path.display());
                Ok(None)
            }
        }
    }

    /// Writes a manifest; it appears at once or not at all.
    pub(crate) fn write(&self, key: &str, manifest: &Manifest) -> Result<(), HubError> {
        let path = self.manifest_path(key);
        make_dir(self.home.join("manifests"))?;
        let inside = manifest.clone().map_paths(|p| match p.strip_prefix(self.home) {
            Ok(relative) => relative.to_owned(),
            Err(_) => p,
        });
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let mut text = serde_json::to_vec_pretty(&inside).expect("a manifest is plain data with text keys");
        text.push(b'\n');
        fs::write(&part, text).map_err(|e| HubError::io("write", &part, e))?;
        fs::rename(&part, &path).map_err(|e| HubError::io("write", &path, e))
    }

    /// Waits until no other process fetches the name, and keeps others out while the returned file is open.
    pub(crate) fn lock(&self, key: &str, progress: &dyn Progress) -> Result<File, HubError> {
        let path = make_dir(self.home.join("locks"))?.join(format!("{key}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| HubError::io("create", &path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.event(&Event::Waiting { lock: &path });
                file.lock().map_err(|e| HubError::io("lock", &path, e))?;
            }
            Err(TryLockError::Error(e)) => return Err(HubError::io("lock", &path, e)),
        }
        Ok(file)
    }

    pub(crate) fn list(&self) -> Result<Vec<Cached>, HubError> {
        let dir = self.home.join("manifests");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(HubError::io("read", &dir, e)),
        };
        let mut models = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| HubError::io("read", &dir, e))?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let Some(manifest) = self.read(&path)? else { continue };
            models.push(Cached {
                complete: manifest.fault().is_none(),
                kind: if manifest.root.is_dir() { Kind::Folder } else { Kind::Gguf },
                bytes: manifest.files.iter().map(|f| f.bytes).sum(),
                name: manifest.name,
                root: manifest.root,
                source: manifest.source,
            });
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(models)
    }
}

fn make_dir(dir: PathBuf) -> Result<PathBuf, HubError> {
    fs::create_dir_all(&dir).map_err(|e| HubError::io("create", &dir, e))?;
    Ok(dir)
}
