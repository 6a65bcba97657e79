//! The folder of cached models: manifests, locks and the paths of files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::alias::aliases;
use crate::cache::lock::FileLock;
use crate::cache::manifest::{CachedModel, ModelLayout, ModelManifest};
use crate::digest;
use crate::error::HubError;
use crate::name::ModelName;
use crate::progress::FetchProgress;
use crate::spelling::is_plain_path;

/// The folder of cached models.
#[derive(Debug)]
pub(crate) struct ModelCache<'a> {
    home: &'a Path,
}

/// A file name for a model's name, unique and readable.
pub(crate) fn model_key(name: &ModelName) -> String {
    if let ModelName::Alias(alias) = name {
        return alias.name.to_owned();
    }
    let text = name.to_string();
    let readable: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' }).take(80).collect();
    let mut hash = digest::HashingWriter::new(io::sink());
    let sha256 = hash.write_all(text.as_bytes()).and_then(|()| hash.finish()).map(|(_, sha256)| sha256);
    format!("{readable}-{}", &sha256.expect("hashing memory cannot fail")[..12])
}

impl<'a> ModelCache<'a> {
    pub(crate) fn new(home: &'a Path) -> Self {
        ModelCache { home }
    }

    fn manifest_path(&self, key: &str) -> PathBuf {
        self.home.join("manifests").join(format!("{key}.json"))
    }

    /// The folder of a name's files, which is created if it does not exist.
    pub(crate) fn model_dir(&self, key: &str) -> Result<PathBuf, HubError> {
        make_dir(self.home.join("models").join(key))
    }

    /// An empty scratch folder for a name, without leftovers of an interrupted fetch.
    pub(crate) fn fresh_tmp(&self, key: &str) -> Result<PathBuf, HubError> {
        self.clear_tmp(key);
        make_dir(self.home.join("tmp").join(key))
    }

    /// Removes a name's scratch folder.
    pub(crate) fn clear_tmp(&self, key: &str) {
        let dir = self.home.join("tmp").join(key);
        if let Err(error) = ok_if_absent(fs::remove_dir_all(&dir)) {
            tracing::warn!("cannot remove {}: {error}", dir.display());
        }
    }

    /// The manifest of a name, if all of its files exist with their sizes.
    pub(crate) fn complete(&self, key: &str, name: &ModelName) -> Result<Option<ModelManifest>, HubError> {
        let Some(manifest) = self.read(&self.manifest_path(key))? else { return Ok(None) };
        if manifest.name != name.to_string() {
            return Ok(None);
        }
        if let Some((path, why)) = manifest.fault() {
            tracing::warn!("cached {} is ignored: {}: {why}", manifest.name, path.display());
            return Ok(None);
        }
        Ok(Some(manifest))
    }

    fn read(&self, path: &Path) -> Result<Option<ModelManifest>, HubError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(HubError::io("read", path, e)),
        };
        match serde_json::from_slice::<ModelManifest>(&text) {
            Ok(manifest) => Ok(Some(manifest.map_paths(|p| self.home.join(p)))),
            Err(error) => {
                tracing::warn!("{} is not a manifest and is ignored: {error}", path.display());
                Ok(None)
            }
        }
    }

    /// Writes a manifest atomically.
    pub(crate) fn write(&self, key: &str, manifest: &ModelManifest) -> Result<(), HubError> {
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
            let _ = fs::remove_file(&part); // the reported error is that of the write
            HubError::io("write", &path, e)
        })
    }

    /// Locks a name: waits until no other process fetches or removes it.
    pub(crate) fn lock(&self, key: &str, progress: &dyn FetchProgress) -> Result<FileLock, HubError> {
        make_dir(self.home.join("locks"))?;
        FileLock::wait(&self.lock_path(key), progress)
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.home.join("locks").join(format!("{key}.lock"))
    }

    /// Removes leftovers of ended processes under names that are not locked: scratch folders, lock
    /// files, unusable parts.
    pub(crate) fn remove_leftovers(&self) {
        let names = |dir: &str| {
            let entries = fs::read_dir(self.home.join(dir)).into_iter().flatten().flatten();
            entries.filter_map(|e| e.file_name().into_string().ok())
        };
        let locks = names("locks").filter_map(|n| n.strip_suffix(".lock").map(str::to_owned));
        for key in names("tmp").chain(locks).filter(|k| is_plain_path(k)).collect::<BTreeSet<String>>() {
            if let Ok(Some(_lock)) = FileLock::try_take(&self.lock_path(&key)) {
                self.clear_tmp(&key);
                self.clear_parts(&key, !is_alias(&key));
            }
        }
    }

    /// Removes the scratch folder of a fetch that has ended, and its parts, except the beginning of
    /// an alias's file, which can be verified and continued.
    pub(crate) fn clean_up(&self, key: &str, fetched: bool) {
        self.clear_tmp(key);
        self.clear_parts(key, fetched || !is_alias(key));
    }

    /// Removes the parts of a name, all or only the empty ones, and then its folder if that is
    /// empty.
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
        let _ = fs::remove_dir(dir); // fails if the folder is not empty
    }

    /// Key and manifest of every model with a readable manifest.
    fn manifests(&self) -> Result<Vec<(String, ModelManifest)>, HubError> {
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

    /// All cached models, sorted by name.
    pub(crate) fn list(&self) -> Result<Vec<CachedModel>, HubError> {
        let cached = |(_, manifest): (String, ModelManifest)| CachedModel {
            complete: manifest.fault().is_none(),
            layout: if manifest.root.is_dir() { ModelLayout::Folder } else { ModelLayout::Gguf },
            bytes: manifest.files.iter().map(|f| f.bytes).sum(),
            name: manifest.name,
            root: manifest.root,
            source: manifest.source,
        };
        Ok(self.manifests()?.into_iter().map(cached).collect())
    }

    /// The key of a cached name, and its manifest if that is readable.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(String, Option<ModelManifest>)>, HubError> {
        let parsed = ModelName::parse(name).ok().filter(|n| !matches!(n, ModelName::Path(_)));
        let canonical = parsed.as_ref().map(ToString::to_string);
        let called = |m: &ModelManifest| m.name == name || Some(&m.name) == canonical.as_ref();
        if let Some((key, manifest)) = self.manifests()?.into_iter().find(|(_, m)| called(m)) {
            return Ok(Some((key, Some(manifest))));
        }
        // An interrupted fetch has no manifest, and a damaged manifest is unreadable.
        let Some(key) = parsed.map(|n| model_key(&n)) else { return Ok(None) };
        let there = [self.manifest_path(&key), self.home.join("models").join(&key), self.home.join("tmp").join(&key)];
        Ok(there.iter().any(|p| p.exists()).then_some((key, None)))
    }

    /// Removes a name's files in this cache, and then its manifest, so that an interrupted removal
    /// is still listed and can be repeated. Returns the number of freed bytes.
    pub(crate) fn remove(&self, key: &str) -> Result<u64, HubError> {
        let mut freed = 0;
        for dir in ["models", "tmp"] {
            let dir = self.home.join(dir).join(key);
            freed += bytes_below(&dir);
            ok_if_absent(fs::remove_dir_all(&dir)).map_err(|e| HubError::io("remove", &dir, e))?;
        }
        let manifest = self.manifest_path(key);
        ok_if_absent(fs::remove_file(&manifest)).map_err(|e| HubError::io("remove", &manifest, e))?;
        Ok(freed)
    }

    /// The files of a manifest that are outside this cache and belong to no other model of it.
    pub(crate) fn files_elsewhere(&self, key: &str, manifest: &ModelManifest) -> Result<Vec<PathBuf>, HubError> {
        let others = self.manifests()?.into_iter().filter(|(k, _)| k != key);
        let used: BTreeSet<PathBuf> = others.flat_map(|(_, m)| m.files).map(|f| f.path).collect();
        let mine = manifest.files.iter().map(|f| f.path.clone());
        Ok(mine.filter(|p| !p.starts_with(self.home) && !used.contains(p)).collect())
    }
}

/// Whether a key is that of an alias. The pieces of its file are verified one by one, so that an
/// interrupted fetch can continue.
fn is_alias(key: &str) -> bool {
    aliases().iter().any(|a| a.name == key)
}

/// Bytes of all files below a folder. Links are not followed, and unreadable files do not count.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(m) if m.is_dir() => bytes_below(&entry.path()),
        Ok(m) => m.len(),
        Err(_) => 0,
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(bytes).sum()
}

fn ok_if_absent(result: io::Result<()>) -> io::Result<()> {
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
    fn usable_parts_are_kept_after_a_failure_and_none_after_a_success() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let cache = ModelCache::new(home.path());
        let write = |key: &str, name: &str, text: &str| {
            let path = cache.model_dir(key).expect("a folder").join(name);
            fs::write(&path, text).expect("written");
            path
        };
        let part = write("smollm2-135m", "a.gguf.part", "verified");
        let empty = write("smollm2-135m", "b.gguf.part", "");
        let other = write("pypi-x-123", "c.gguf.part", "begun");
        cache.clean_up("smollm2-135m", false);
        cache.clean_up("pypi-x-123", false);
        assert!(part.exists() && !empty.exists() && !other.exists());
        assert!(!other.parent().expect("its folder").exists());
        let whole = write("smollm2-135m", "a.gguf", "whole");
        cache.clean_up("smollm2-135m", true);
        assert!(whole.exists() && !part.exists());
    }
}
