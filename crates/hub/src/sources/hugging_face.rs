//! Models of the Hugging Face hub, through the cache that its clients share.
//!
//! Layout of that cache: `models--org--repo/{blobs/<etag>, refs/<revision>,
//! snapshots/<commit>/<file> -> blob}`. The etag of a large file is its SHA-256, which is how a
//! download and a file found in the cache are checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};

use crate::cache::lock::FileLock;
use crate::digest;
use crate::error::HubError;
use crate::fetched::{FetchedFile, FetchedModel};
use crate::options::HubOptions;
use crate::progress::{FetchEvent, FetchProgress};
use crate::sources::model_files::{self, FOLDER_FILES, INDEX, ModelFiles};
use crate::spelling::is_plain_path;

/// Number of times that a broken transfer is continued.
const RETRIES: usize = 3;

/// Looks for a complete model in the shared cache, where another program may have put it.
pub(crate) fn find(
    repo: &str,
    revision: &str,
    file: Option<&str>,
    opts: &HubOptions,
) -> Result<Option<FetchedModel>, HubError> {
    let Some(snapshot) = snapshot_of(repo, revision, opts) else { return Ok(None) };
    let mut present = Vec::new();
    list_files(&snapshot, "", &mut present);
    let what = display(repo, revision);
    let wanted = match file {
        Some(file) => model_files::with_siblings(file),
        None => match model_files::choose(&what, &present) {
            Ok(ModelFiles::Gguf(shards)) => model_files::with_siblings(shards.first().map_or("", String::as_str)),
            Ok(ModelFiles::Folder) => {
                let Some(weights) = local_weights(&snapshot) else { return Ok(None) };
                let small = FOLDER_FILES.iter().map(|f| (*f).to_owned()).filter(|f| present.contains(f));
                small.chain(weights).collect()
            }
            // The cache has only files that were requested before; the repository itself may have a
            // single model.
            Err(_) => return Ok(None),
        },
    };
    if !wanted.iter().all(|f| present.contains(f)) {
        return Ok(None);
    }
    let files = wanted.iter().map(|f| describe(&snapshot.join(f))).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(assemble(what, snapshot, wanted, files)))
}

/// Downloads a model. `sha256`: that of the file, if it is known.
pub(crate) fn fetch(
    repo: &str,
    revision: &str,
    file: Option<&str>,
    sha256: Option<&str>,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<FetchedModel, HubError> {
    let remote = RemoteRepository { repo, revision, opts, progress };
    let available = remote.list()?;
    let what = display(repo, revision);
    let wanted = match file {
        Some(file) => model_files::with_siblings(file),
        None => match model_files::choose(&what, &available)? {
            ModelFiles::Gguf(shards) => model_files::with_siblings(shards.first().map_or("", String::as_str)),
            ModelFiles::Folder => remote.folder(&available)?,
        },
    };
    for file in &wanted {
        if !available.contains(file) {
            let url = format!("{}/{repo}", opts.hf_endpoint);
            let why = format!("no file `{file}`; it has {}", shown(&available));
            return Err(HubError::Http { url, why, status: Some(404) });
        }
    }
    let mut files = Vec::new();
    let mut snapshot: Option<PathBuf> = None;
    for file in &wanted {
        let got = remote.file(file, sha256)?;
        let root = got.path.ancestors().nth(file.split('/').count()).unwrap_or(&got.path).to_owned();
        if snapshot.get_or_insert_with(|| root.clone()) != &root {
            let why = "the repository changed while it was downloaded, try again".to_owned();
            return Err(HubError::Http { url: format!("{}/{repo}", opts.hf_endpoint), why, status: None });
        }
        files.push(got);
    }
    let snapshot = snapshot.ok_or_else(|| HubError::NoModel { what: what.clone(), have: available })?;
    Ok(assemble(what, snapshot, wanted, files))
}

/// Removes a file of the shared cache, its content unless another revision uses it, and folders
/// that become empty. Returns the number of freed bytes. A file outside the shared cache is kept.
pub(crate) fn remove(path: &Path, opts: &HubOptions) -> Result<u64, HubError> {
    let Some(repo) = path.ancestors().find(|a| a.parent() == Some(&*opts.hf_cache)) else { return Ok(0) };
    let blob = fs::canonicalize(path).ok();
    let own = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map_or(0, |m| m.len());
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(HubError::io("remove", path, e)),
        _ => {}
    }
    let emptied = path.ancestors().skip(1).take_while(|a| a.parent() != Some(repo));
    for dir in emptied {
        if fs::remove_dir(dir).is_err() {
            break; // it is not empty
        }
    }
    let blobs = fs::canonicalize(repo.join("blobs")).ok();
    let Some(blob) = blob.filter(|b| b.parent() == blobs.as_deref()) else { return Ok(own) };
    let mut names = Vec::new();
    list_files(&repo.join("snapshots"), "", &mut names);
    if names.iter().any(|n| fs::canonicalize(repo.join("snapshots").join(n)).is_ok_and(|other| other == blob)) {
        return Ok(0);
    }
    let bytes = fs::metadata(&blob).map_or(0, |m| m.len());
    fs::remove_file(&blob).map_err(|e| HubError::io("remove", &blob, e))?;
    // The library does not remove its lock file.
    drop(FileLock::try_take(&blob.with_extension("lock")));
    Ok(bytes)
}

fn assemble(source: String, snapshot: PathBuf, names: Vec<String>, files: Vec<FetchedFile>) -> FetchedModel {
    match names.first() {
        Some(first) if first.ends_with(".gguf") => {
            FetchedModel { root: snapshot.join(first), files, source: format!("{source}/{first}") }
        }
        _ => FetchedModel { root: snapshot, files, source },
    }
}

fn display(repo: &str, revision: &str) -> String {
    if revision == "main" { format!("hf:{repo}") } else { format!("hf:{repo}@{revision}") }
}

fn shown(files: &[String]) -> String {
    files.iter().take(24).map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A repository of the hub.
struct RemoteRepository<'a> {
    repo: &'a str,
    revision: &'a str,
    opts: &'a HubOptions,
    progress: &'a dyn FetchProgress,
}

/// Messages of the downloading thread.
enum DownloadMessage {
    Size { bytes: u64, etag: String, blob: PathBuf },
    More(u64),
    Done(Result<PathBuf, ApiError>),
}

impl RemoteRepository<'_> {
    fn api(&self) -> Result<Api, HubError> {
        ApiBuilder::from_cache(hf_hub::Cache::new(self.opts.hf_cache.clone()))
            .with_endpoint(self.opts.hf_endpoint.clone())
            .with_token(self.opts.hf_token.clone())
            .with_progress(false)
            .with_retries(RETRIES)
            .with_user_agent("selfspec", env!("CARGO_PKG_VERSION"))
            .build()
            .map_err(|e| self.fault(&self.opts.hf_endpoint, &e))
    }

    fn handle(&self, api: &Api) -> ApiRepo {
        api.repo(self.repo())
    }

    fn repo(&self) -> Repo {
        Repo::with_revision(self.repo.to_owned(), RepoType::Model, self.revision.to_owned())
    }

    /// The files of the repository. The time limits are short, so that a hub that does not answer
    /// fails here.
    fn list(&self) -> Result<Vec<String>, HubError> {
        let api = self.api()?;
        let url = format!("{}/{}", self.opts.hf_endpoint, self.repo);
        let limit = Some(self.opts.connect_timeout);
        let patience = Some(self.opts.connect_timeout * 3);
        let request = self.handle(&api).info_request().config();
        let request = request.timeout_resolve(limit).timeout_connect(limit).timeout_recv_response(patience);
        let mut response =
            request.timeout_recv_body(patience).build().call().map_err(|e| http_error(url.clone(), &e))?;
        let info: RepoInfo = response.body_mut().read_json().map_err(|e| http_error(url.clone(), &e))?;
        let names = info.siblings.into_iter().map(|s| s.rfilename);
        // Names that lead out of the cache's folder are ignored.
        Ok(names.filter(|n| is_plain_path(n)).collect())
    }

    /// The files of a safetensors folder. The weights are last, so that a folder with weights is
    /// complete.
    fn folder(&self, available: &[String]) -> Result<Vec<String>, HubError> {
        let small = FOLDER_FILES.iter().map(|f| (*f).to_owned()).filter(|f| available.contains(f));
        let mut wanted: Vec<String> = small.collect();
        if available.iter().any(|f| f == INDEX) {
            let index = self.file(INDEX, None)?;
            let shards = read_index(&index.path).ok_or_else(|| HubError::Http {
                url: format!("{}/{}/{INDEX}", self.opts.hf_endpoint, self.repo),
                why: "not an index of safetensors".to_owned(),
                status: None,
            })?;
            wanted.push(INDEX.to_owned());
            wanted.extend(shards);
        } else {
            wanted.push("model.safetensors".to_owned());
        }
        Ok(wanted)
    }

    /// Downloads one file, or finds it in the cache, and checks its size and, if known, its
    /// SHA-256.
    fn file(&self, name: &str, sha256: Option<&str>) -> Result<FetchedFile, HubError> {
        if !self.opts.force
            && let Some(snapshot) = snapshot_of(self.repo, self.revision, self.opts)
            && let Ok(found) = describe(&snapshot.join(name))
            && sha256.is_none_or(|expected| found.sha256.as_deref() == Some(expected))
        {
            return Ok(found);
        }
        match self.download(name, sha256) {
            // A leftover of an earlier transfer may have been damaged: once more, from the start.
            Err(HubError::Mismatch { path, .. } | HubError::WrongSize { path, .. }) => {
                self.progress
                    .event(&FetchEvent::Discarded { path: &path, why: "its content is wrong, fetching it again" });
                self.download(name, sha256)
            }
            other => other,
        }
    }

    fn download(&self, name: &str, sha256: Option<&str>) -> Result<FetchedFile, HubError> {
        let api = self.api()?;
        let url = self.handle(&api).url(name);
        let (send, receive) = mpsc::channel();
        let (repo, cache) = (self.repo(), self.opts.hf_cache.clone());
        let (thread_url, thread_name) = (url.clone(), name.to_owned());
        // The library has no time limits: it runs on a thread that this one can abandon.
        let spawned = std::thread::Builder::new()
            .name("download".to_owned())
            .spawn(move || download_on_thread(&api, repo, &cache, &thread_url, &thread_name, &send));
        spawned.map_err(|e| HubError::io("start a thread for", Path::new(name), e))?;

        let mut limit = self.opts.connect_timeout * 3;
        let (mut expected, mut done) = (None, 0);
        let path = loop {
            match receive.recv_timeout(limit) {
                Ok(DownloadMessage::Size { bytes, etag, blob }) => {
                    limit = self.opts.stall_timeout;
                    self.progress.event(&FetchEvent::Start { verb: "download", what: name, bytes: Some(bytes) });
                    expected = Some((bytes, etag, blob));
                }
                Ok(DownloadMessage::More(bytes)) => {
                    done += bytes;
                    self.progress.event(&FetchEvent::Bytes(done));
                }
                Ok(DownloadMessage::Done(Ok(path))) => break path,
                Ok(DownloadMessage::Done(Err(error))) => return Err(self.fault(&url, &error)),
                Err(RecvTimeoutError::Timeout) => return Err(HubError::Stalled { what: url, after: limit }),
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the answer is not that of a Hugging Face hub".to_owned();
                    return Err(HubError::Http { url, why, status: None });
                }
            }
        };
        self.progress.event(&FetchEvent::Finish);
        let Some((bytes, etag, blob)) = expected else {
            return Err(HubError::Http { url, why: "no size was announced".to_owned(), status: None });
        };
        self.check(&path, &blob, bytes, sha256.or(Some(&*etag).filter(|e| digest::is_sha256(e))))
    }

    /// Checks a downloaded file, and removes a damaged one.
    fn check(&self, path: &Path, blob: &Path, bytes: u64, sha256: Option<&str>) -> Result<FetchedFile, HubError> {
        let got = fs::metadata(path).map_err(|e| HubError::io("read", path, e))?.len();
        let mut fault = None;
        if got != bytes {
            fault = Some(HubError::WrongSize { path: path.to_owned(), expected: bytes, got });
        } else if let Some(expected) = sha256 {
            let got = digest::file(path, self.progress)?;
            if got != expected {
                fault = Some(HubError::Mismatch { path: path.to_owned(), expected: expected.to_owned(), got });
            }
        }
        match fault {
            None => Ok(FetchedFile { path: path.to_owned(), bytes, sha256: sha256.map(str::to_owned) }),
            Some(fault) => {
                for bad in [path, blob] {
                    if let Err(error) = fs::remove_file(bad) {
                        tracing::warn!("cannot remove {}: {error}", bad.display());
                    }
                }
                Err(fault)
            }
        }
    }

    fn fault(&self, url: &str, error: &ApiError) -> HubError {
        match error {
            ApiError::RequestError(e) => http_error(url.to_owned(), e),
            ApiError::TooManyRetries(e) => self.fault(url, e),
            ApiError::IoError(e) if is_disk(e) => {
                HubError::io("write", &self.opts.hf_cache, std::io::Error::new(e.kind(), e.to_string()))
            }
            ApiError::LockAcquisition(path) => {
                let why = format!("another program downloads it (lock {})", path.display());
                HubError::Http { url: url.to_owned(), why, status: None }
            }
            e => HubError::Http { url: url.to_owned(), why: one_line(&e.to_string()), status: None },
        }
    }
}

fn download_on_thread(api: &Api, repo: Repo, cache: &Path, url: &str, name: &str, send: &Sender<DownloadMessage>) {
    // It fails if the receiver has given up.
    let send_message = |message| send.send(message).is_ok();
    let metadata = match api.metadata(url) {
        Ok(metadata) => metadata,
        Err(error) => {
            send_message(DownloadMessage::Done(Err(error)));
            return;
        }
    };
    let cached = hf_hub::Cache::new(cache.to_owned()).repo(repo.clone());
    let blob = cached.blob_path(metadata.etag());
    // Both become names of files in the cache.
    if !is_plain_path(metadata.etag()) || !is_plain_path(metadata.commit_hash()) {
        send_message(DownloadMessage::Done(Err(ApiError::InvalidHeader("etag"))));
        return;
    }
    // A part as long as the file cannot be continued: its end was never checked.
    let part = blob.with_extension("part");
    if fs::metadata(&part).is_ok_and(|m| m.len() >= metadata.size() as u64)
        && let Err(error) = fs::remove_file(&part)
    {
        send_message(DownloadMessage::Done(Err(ApiError::IoError(error))));
        return;
    }
    send_message(DownloadMessage::Size { bytes: metadata.size() as u64, etag: metadata.etag().to_owned(), blob });
    let result = api.repo(repo).download_with_progress(name, ProgressSender(send.clone()));
    send_message(DownloadMessage::Done(result));
}

/// Sends the number of arriving bytes to the waiting thread.
struct ProgressSender(Sender<DownloadMessage>);

impl hf_hub::api::Progress for ProgressSender {
    fn init(&mut self, _size: usize, _filename: &str) {}

    fn update(&mut self, size: usize) {
        // It fails if the receiver has given up; the download then ends with the process.
        let _ = self.0.send(DownloadMessage::More(size as u64));
    }

    fn finish(&mut self) {}
}

fn is_disk(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as K;
    matches!(error.kind(), K::StorageFull | K::QuotaExceeded | K::PermissionDenied | K::ReadOnlyFilesystem)
}

fn http_error(url: String, error: &ureq::Error) -> HubError {
    let status = if let ureq::Error::StatusCode(status) = error { Some(*status) } else { None };
    let why = match status {
        Some(404) => "not found (HTTP 404)".to_owned(),
        Some(401 | 403) => format!("access refused (HTTP {})", status.unwrap_or_default()),
        Some(status) => format!("HTTP {status}"),
        None => one_line(&error.to_string()),
    };
    HubError::Http { url, why, status }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The folder of the commit that `revision` names in the cache.
fn snapshot_of(repo: &str, revision: &str, opts: &HubOptions) -> Option<PathBuf> {
    let repo = Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned());
    let dir = opts.hf_cache.join(repo.folder_name());
    let commit = match fs::read_to_string(dir.join("refs").join(revision)) {
        Ok(commit) => commit.trim().to_owned(),
        Err(_) => revision.to_owned(),
    };
    let snapshot = dir.join("snapshots").join(&commit);
    (is_plain_path(&commit) && snapshot.is_dir()).then_some(snapshot)
}

/// A file of the cache: its size, and its SHA-256 if its blob is named by one.
fn describe(path: &Path) -> Result<FetchedFile, HubError> {
    let bytes = fs::metadata(path).map_err(|e| HubError::io("read", path, e))?.len();
    let blob = fs::canonicalize(path).map_err(|e| HubError::io("read", path, e))?;
    let sha256 = blob.file_name().and_then(|n| n.to_str()).filter(|n| digest::is_sha256(n)).map(str::to_owned);
    Ok(FetchedFile { path: path.to_owned(), bytes, sha256 })
}

/// Relative names of all files below `dir`. Links are followed, and unreadable entries are left
/// out.
fn list_files(dir: &Path, prefix: &str, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let Some(name) = entry.file_name().to_str().map(|n| format!("{prefix}{n}")) else { continue };
        match fs::metadata(entry.path()) {
            Ok(m) if m.is_dir() => list_files(&entry.path(), &format!("{name}/"), names),
            Ok(_) => names.push(name),
            Err(_) => {}
        }
    }
}

/// The weight files of a folder on disk: those that its index names, else the single file.
fn local_weights(snapshot: &Path) -> Option<Vec<String>> {
    if snapshot.join(INDEX).exists() {
        let mut files = read_index(&snapshot.join(INDEX))?;
        files.push(INDEX.to_owned());
        return Some(files);
    }
    Some(vec!["model.safetensors".to_owned()])
}

/// The shards that an index of safetensors names.
fn read_index(path: &Path) -> Option<Vec<String>> {
    let index: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let shards: Option<BTreeSet<String>> =
        index.get("weight_map")?.as_object()?.values().map(|v| v.as_str().map(str::to_owned)).collect();
    shards.filter(|s| !s.is_empty() && s.iter().all(|f| is_plain_path(f))).map(|s| s.into_iter().collect())
}
