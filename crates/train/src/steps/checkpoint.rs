//! [`Checkpoint`]: the state of a training on disk, from which an interrupted training resumes bit
//! for bit.
//!
//! The file holds a header as a line of JSON, the values, the optimizer's two rows of floats, and a
//! checksum over all. It is written beside its destination, synced, and then renamed, so the
//! destination always holds a complete file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// The header of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) version: u32,
    /// Everything that decides the course of the training, as text.
    pub(crate) identity: String,
    /// Steps taken.
    pub(crate) step: usize,
    /// Steps that the optimizer has taken: those whose gradient was finite.
    pub(crate) optimizer_steps: usize,
    /// Consecutive batches without a finite loss before this checkpoint.
    pub(crate) failed: usize,
    /// Floats in each of the three rows.
    pub(crate) len: usize,
}

/// The version of the file format.
pub(crate) const VERSION: u32 = 1;

/// Bytes to read or write at a time: whole floats.
const CHUNK: usize = 1 << 18;
/// Most bytes of a header.
const MOST_HEADER: u64 = 1 << 20;

/// The state of a training.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) header: Header,
    pub(crate) values: Vec<f32>,
    pub(crate) mean: Vec<f32>,
    pub(crate) square: Vec<f32>,
}

impl Checkpoint {
    pub(crate) fn write(&self, path: &Path) -> Result<(), TrainError> {
        save(path, &self.header, [&self.values, &self.mean, &self.square])
    }

    /// Reads a checkpoint of a training with this identity and number of values.
    pub(crate) fn read(path: &Path, identity: &str, len: usize) -> Result<Checkpoint, TrainError> {
        let io = || TrainError::io("read", path);
        let file = File::open(path).map_err(io())?;
        let size = file.metadata().map_err(io())?.len();
        let (mut file, mut line) = (BufReader::new(file), Vec::new());
        file.by_ref().take(MOST_HEADER).read_until(b'\n', &mut line).map_err(io())?;
        let header: Option<Header> = if line.ends_with(b"\n") { serde_json::from_slice(&line).ok() } else { None };
        let Some(header) = header else { return Err(TrainError::bad(path, "it is no checkpoint of a training")) };
        let differs = |what, theirs: String, ours: String| {
            Err(TrainError::Mismatch { path: path.to_owned(), what, theirs, ours })
        };
        if header.version != VERSION {
            return differs("version", header.version.to_string(), VERSION.to_string());
        }
        if header.identity != identity {
            return differs("training", header.identity, identity.to_owned());
        }
        if header.len != len {
            return differs("number of values", header.len.to_string(), len.to_string());
        }
        let content = line.len() as u64 + 3 * 4 * len as u64;
        if size != content + 8 {
            return Err(TrainError::Truncated { path: path.to_owned(), expected: content + 8, got: size });
        }
        let mut sum = Checksum::new(content);
        sum.update(&line);
        let mut row = || -> Result<Vec<f32>, TrainError> {
            let (mut values, mut bytes) = (Vec::with_capacity(len), vec![0; CHUNK]);
            while values.len() < len {
                let bytes = &mut bytes[..CHUNK.min(4 * (len - values.len()))];
                file.read_exact(bytes).map_err(io())?;
                sum.update(bytes);
                values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            }
            Ok(values)
        };
        let (values, mean, square) = (row()?, row()?, row()?);
        let mut stated = [0; 8];
        file.read_exact(&mut stated).map_err(io())?;
        if sum.finish().to_le_bytes() != stated {
            return Err(TrainError::bad(path, "its checksum is wrong"));
        }
        Ok(Checkpoint { header, values, mean, square })
    }
}

/// Writes a checkpoint of these values and the optimizer's two rows, in pieces, without a copy of
/// them.
pub(crate) fn save(path: &Path, header: &Header, rows: [&[f32]; 3]) -> Result<(), TrainError> {
    let mut line = serde_json::to_vec(header).expect("a header is plain data");
    line.push(b'\n');
    let mut sum = Checksum::new(line.len() as u64 + rows.iter().map(|row| 4 * row.len() as u64).sum::<u64>());
    write_whole_by(path, |file| {
        sum.update(&line);
        file.write_all(&line)?;
        let mut bytes = Vec::with_capacity(CHUNK);
        for row in rows {
            for values in row.chunks(CHUNK / 4) {
                bytes.clear();
                values.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
                sum.update(&bytes);
                file.write_all(&bytes)?;
            }
        }
        file.write_all(&sum.finish().to_le_bytes())
    })
}

/// Writes a file atomically: the path holds either the old file or all of `bytes`, even if the
/// machine stops.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    write_whole_by(path, |file| file.write_all(bytes))
}

/// As [`write_whole`], with the bytes that `write` writes.
pub(crate) fn write_whole_by(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), TrainError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let written = File::create(&part).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    });
    if let Err(e) = written {
        // An incomplete file is useless.
        let _ = fs::remove_file(&part);
        return Err(TrainError::io("write", path)(e));
    }
    fs::rename(&part, path).map_err(TrainError::io("write", path))?;
    // The rename is durable once the folder is synced. Not every system can open a folder.
    if let Some(Ok(folder)) = path.parent().map(File::open) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// A checksum over bytes that arrive in pieces.
struct Checksum {
    hash: u64,
    left: Vec<u8>, // fewer than 8
}

impl Checksum {
    /// A checksum of `len` bytes.
    fn new(len: u64) -> Checksum {
        Checksum { hash: len, left: Vec::new() }
    }

    fn step(&mut self, x: u64) {
        self.hash = (self.hash ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn word(&mut self, w: &[u8]) {
        self.step(u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]));
    }

    fn update(&mut self, mut bytes: &[u8]) {
        if !self.left.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - self.left.len()));
            self.left.extend_from_slice(head);
            bytes = rest;
            if self.left.len() == 8 {
                let word = std::mem::take(&mut self.left);
                self.word(&word);
            }
        }
        let mut words = bytes.chunks_exact(8);
        words.by_ref().for_each(|w| self.word(w));
        self.left.extend_from_slice(words.remainder());
    }

    fn finish(mut self) -> u64 {
        for b in std::mem::take(&mut self.left) {
            self.step(u64::from(b));
        }
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let header = Header {
            version: VERSION,
            identity: "this one".to_owned(),
            step: 12,
            optimizer_steps: 11,
            failed: 1,
            len: 3,
        };
        Checkpoint { header, values: vec![1.0, -2.5, 3e-40], mean: vec![0.1; 3], square: vec![0.2; 3] }
    }

    #[test]
    fn a_checkpoint_comes_back_bit_for_bit_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("state");
        checkpoint().write(&path).expect("written");
        checkpoint().write(&path).expect("written over it");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1, "nothing is left beside it");
        assert_eq!(Checkpoint::read(&path, "this one", 3).expect("sound"), checkpoint());
        let why = |identity: &str, len| Checkpoint::read(&path, identity, len).expect_err("refused").to_string();
        assert!(why("another", 3).contains("made for another training (this one, now another)"));
        assert!(why("this one", 4).contains("made for another number of values (3, now 4)"));
        let whole = fs::read(&path).expect("there");
        for len in [0, 5, whole.len() - 1] {
            fs::write(&path, &whole[..len]).expect("written");
            let e = why("this one", 3);
            assert!(e.contains("no checkpoint") || e.contains("ends after"), "{len}: {e}");
        }
        for at in [whole.len() - 40, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("written");
            assert!(why("this one", 3).contains("checksum"), "byte {at}");
        }
        fs::remove_file(&path).expect("there");
        assert!(why("this one", 3).starts_with("cannot read "));
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("state");
        fs::write(&path, "before").expect("written");
        fs::create_dir(dir.path().join("state.part")).expect("in the way");
        let e = checkpoint().write(&path).expect_err("in the way").to_string();
        assert!(e.starts_with("cannot write "), "{e}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "before");
        let full = TrainError::io("write", &path)(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(full.to_string().starts_with("disk full while writing "));
    }
}
