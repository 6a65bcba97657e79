//! The cache: manifests, locks and the paths of files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::alias::aliases;
use crate::lock::Lock;
use crate::name::{ModelName, is_plain_path};
use crate::{FetchProgress, Fetched, FetchedFile, HubError, digest};

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
        if let Err(error) = absent_is_fine(fs::remove_dir_all(&dir)) {
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
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
        written.map_err(|e| {
            let _ = fs::remove_file(&part); // what is told is why it could not be written
            HubError::io("write", &path, e)
        })
    }

    /// Waits until no other process fetches or removes the name, and keeps others out while the returned lock lives.
    pub(crate) fn lock(&self, key: &str, progress: &dyn FetchProgress) -> Result<Lock, HubError> {
        make_dir(self.home.join("locks"))?;
        Lock::wait(&self.lock_path(key), progress)
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.home.join("locks").join(format!("{key}.lock"))
    }

    /// Removes what ended processes left of the names that nobody holds: scratch folders, lock files, parts that are not used again.
    pub(crate) fn sweep(&self) {
        let names = |dir: &str| {
            let entries = fs::read_dir(self.home.join(dir)).into_iter().flatten().flatten();
            entries.filter_map(|e| e.file_name().into_string().ok())
        };
        let locks = names("locks").filter_map(|n| n.strip_suffix(".lock").map(str::to_owned));
        for key in names("tmp").chain(locks).filter(|k| is_plain_path(k)).collect::<BTreeSet<String>>() {
            if let Ok(Some(_lock)) = Lock::try_take(&self.lock_path(&key)) {
                self.clear_tmp(&key);
                self.clear_parts(&key, !is_alias(&key));
            }
        }
    }

    /// Clears up after a fetch that has ended: nothing of its scratch folder is used again, and of its parts only the verified
    /// beginning of an alias's file.
    pub(crate) fn clear_after(&self, key: &str, fetched: bool) {
        self.clear_tmp(key);
        self.clear_parts(key, fetched || !is_alias(key));
    }

    /// Removes the files of a name that are being written, all or only the empty ones; then its folder if that holds nothing.
    fn clear_parts(&self, key: &str, all: bool) {
        let dir = self.home.join("models").join(key);
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let empty = entry.metadata().is_ok_and(|m| m.len() == 0);
            if path.extension().is_some_and(|e| e == "part")
                && (all || empty)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
        let _ = fs::remove_dir(dir); // it fails where there is something to keep
    }

    /// The key and the manifest of every model whose manifest can be read.
    fn manifests(&self) -> Result<Vec<(String, Manifest)>, HubError> {
        let dir = self.home.join("manifests");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(HubError::io("read", &dir, e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| HubError::io("read", &dir, e))?.path();
            let key = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".json"));
            let Some(key) = key.filter(|k| is_plain_path(k)) else { continue };
            if let Some(manifest) = self.read(&path)? {
                found.push((key.to_owned(), manifest));
            }
        }
        found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        Ok(found)
    }

    pub(crate) fn list(&self) -> Result<Vec<Cached>, HubError> {
        let cached = |(_, manifest): (String, Manifest)| Cached {
            complete: manifest.fault().is_none(),
            kind: if manifest.root.is_dir() { Kind::Folder } else { Kind::Gguf },
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
            name: manifest.name,
            root: manifest.root,
            source: manifest.source,
        };
        Ok(self.manifests()?.into_iter().map(cached).collect())
    }

    /// What the cache holds under a name: its key, and its manifest if that can be read.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(String, Option<Manifest>)>, HubError> {
        let parsed = ModelName::parse(name).ok().filter(|n| !matches!(n, ModelName::Path(_)));
        let canonical = parsed.as_ref().map(ToString::to_string);
        let called = |m: &Manifest| m.name == name || Some(&m.name) == canonical.as_ref();
        if let Some((key, manifest)) = self.manifests()?.into_iter().find(|(_, m)| called(m)) {
            return Ok(Some((key, Some(manifest))));
        }
        // An interrupted fetch has no manifest, and a damaged one cannot be read.
        let Some(key) = parsed.map(|n| key(&n)) else { return Ok(None) };
        let there = [self.manifest_path(&key), self.home.join("models").join(&key), self.home.join("tmp").join(&key)];
        Ok(there.iter().any(|p| p.exists()).then_some((key, None)))
    }

    /// Removes a name's files in this cache, then its manifest: an interrupted removal is listed and can be repeated. Returns the bytes
    /// that are free now.
    pub(crate) fn remove(&self, key: &str) -> Result<u64, HubError> {
        let mut freed = 0;
        for dir in ["models", "tmp"] {
            let dir = self.home.join(dir).join(key);
            freed += bytes_below(&dir);
            absent_is_fine(fs::remove_dir_all(&dir)).map_err(|e| HubError::io("remove", &dir, e))?;
        }
        let manifest = self.manifest_path(key);
        absent_is_fine(fs::remove_file(&manifest)).map_err(|e| HubError::io("remove", &manifest, e))?;
        Ok(freed)
    }

    /// The files of a manifest that lie elsewhere and belong to no other model of this cache.
    pub(crate) fn files_elsewhere(&self, key: &str, manifest: &Manifest) -> Result<Vec<PathBuf>, HubError> {
        let others = self.manifests()?.into_iter().filter(|(k, _)| k != key);
        let used: BTreeSet<PathBuf> = others.flat_map(|(_, m)| m.files).map(|f| f.path).collect();
        let mine = manifest.files.iter().map(|f| f.path.clone());
        Ok(mine.filter(|p| !p.starts_with(self.home) && !used.contains(p)).collect())
    }
}

/// Whether a key is that of an alias: the parts of its file are verified one by one, and go on where they ended.
fn is_alias(key: &str) -> bool {
    aliases().iter().any(|a| a.name == key)
}

/// Bytes of all files below a folder, links not followed; what cannot be read counts as nothing.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(m) if m.is_dir() => bytes_below(&entry.path()),
        Ok(m) => m.len(),
        Err(_) => 0,
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(bytes).sum()
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

fn make_dir(dir: PathBuf) -> Result<PathBuf, HubError> {
    fs::create_dir_all(&dir).map_err(|e| HubError::io("create", &dir, e))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_can_go_on_are_kept_after_a_failure_and_none_after_a_success() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::new(home.path());
        let write = |key: &str, name: &str, text: &str| {
            let path = cache.model_dir(key).expect("a folder").join(name);
            fs::write(&path, text).expect("written");
            path
        };
        let part = write("smollm2-135m", "a.gguf.part", "verified");
        let empty = write("smollm2-135m", "b.gguf.part", "");
        let other = write("pypi-x-123", "c.gguf.part", "begun");
        cache.clear_after("smollm2-135m", false);
        cache.clear_after("pypi-x-123", false);
        assert!(part.exists() && !empty.exists() && !other.exists());
        assert!(!other.parent().expect("its folder").exists());
        let whole = write("smollm2-135m", "a.gguf", "whole");
        cache.clear_after("smollm2-135m", true);
        assert!(whole.exists() && !part.exists());
    }
}
