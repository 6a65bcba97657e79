//! SHA-256 of files, and of bytes while they are written.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::HubError;
use crate::progress::{FetchEvent, FetchProgress};

/// Bytes copied at a time.
pub(crate) const CHUNK: usize = 256 * 1024;

/// A writer that hashes and counts the bytes it passes on.
pub(crate) struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        HashingWriter { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// Flushes, and returns the number of bytes and their SHA-256 in lower-case hexadecimal.
    pub(crate) fn finish(mut self) -> io::Result<(u64, String)> {
        self.inner.flush()?;
        Ok((self.bytes, hex(&self.hash.finalize())))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// SHA-256 of a file, in lower-case hexadecimal.
pub(crate) fn file(path: &Path, progress: &dyn FetchProgress) -> Result<String, HubError> {
    let mut file = File::open(path).map_err(|e| HubError::io("read", path, e))?;
    let bytes = file.metadata().map_err(|e| HubError::io("read", path, e))?.len();
    progress.event(&FetchEvent::Start { verb: "verify", what: &file_name(path), bytes: Some(bytes) });
    let mut hash = HashingWriter::new(io::sink());
    copy(&mut file, &mut hash, u64::MAX, progress).map_err(|(_, e)| HubError::io("read", path, e))?;
    progress.event(&FetchEvent::Finish);
    let (_, sha256) = hash.finish().map_err(|e| HubError::io("read", path, e))?;
    Ok(sha256)
}

/// Which side of a copy failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopySide {
    Read,
    Write,
}

/// Copies at most `limit` bytes, with progress events. Returns the number of bytes.
pub(crate) fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    limit: u64,
    progress: &dyn FetchProgress,
) -> Result<u64, (CopySide, io::Error)> {
    let mut buf = vec![0; CHUNK];
    let mut done = 0;
    while done < limit {
        let want = usize::try_from(limit - done).map_or(CHUNK, |left| left.min(CHUNK));
        let n = match from.read(&mut buf[..want]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err((CopySide::Read, e)),
        };
        to.write_all(&buf[..n]).map_err(|e| (CopySide::Write, e))?;
        done += n as u64;
        progress.event(&FetchEvent::Bytes(done));
    }
    Ok(done)
}

/// The last component of a path, for messages.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a text is a SHA-256 in lower-case hexadecimal.
pub(crate) fn is_sha256(s: &str) -> bool {
    s.len() == 64 && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SilentFetch;

    #[test]
    fn a_copy_is_hashed_and_stops_at_its_limit() {
        let mut out = HashingWriter::new(Vec::new());
        let copied = copy(&mut &b"abcdef"[..], &mut out, 3, &SilentFetch).expect("memory to memory");
        assert_eq!(copied, 3);
        let (bytes, sha256) = out.finish().expect("memory");
        assert_eq!(bytes, 3);
        // FIPS 180-4's example for "abc".
        assert_eq!(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_sha256(&sha256) && !is_sha256(&sha256[1..]) && !is_sha256(&sha256.to_uppercase()));
    }
}
