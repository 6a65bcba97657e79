//! [`HiddenStateCache`]: the frozen model's hidden states on disk. The model computes them once;
//! every epoch reads them.
//!
//! The file has a line of JSON that names its model and corpus. Then, for every token of every
//! text, in order, comes its state after each of the chosen numbers of layers: the logarithm of a
//! scale in base 2 (i32), and the state divided by the scale as f16. The cache holds one text in
//! memory at a time.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use half::f16;
use half::slice::HalfFloatSliceExt;
use selfspec_model::TokenId;
use serde::{Deserialize, Serialize};

use crate::data::corpus::Corpus;
use crate::error::TrainError;

/// Computes the frozen model's hidden states.
pub trait HiddenStateSource {
    /// For each of `layers`, the hidden state of every token after that number of layers of the
    /// model: 0 is the embedding, the model's depth the state before the final norm. Shape of each:
    /// (token, dim).
    ///
    /// # Errors
    /// If the model cannot run.
    fn states(
        &mut self,
        tokens: &[TokenId],
        layers: &[usize],
    ) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error + Send + Sync>>;
}

/// The model and corpus of a cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StatesHeader {
    version: u32,
    model: String, // fingerprint
    corpus: String,
    dim: usize,
    layers: Vec<usize>,
}

const VERSION: u32 = 1;

/// A complete cache, open for reading.
#[derive(Debug)]
pub struct HiddenStateCache {
    path: PathBuf,
    file: Mutex<File>,
    header: StatesHeader,
    start: u64,      // of the first row
    first: Vec<u64>, // (text): its first row
}

impl HiddenStateCache {
    /// Opens the cache of `corpus` at `path`, and computes the missing states; it resumes an
    /// interrupted cache.
    ///
    /// `progress` receives the number of finished texts and of all texts. It stops the work by
    /// returning false; the result is then `None`.
    ///
    /// `model` is the fingerprint of the model, `dim` its width; `layers` the numbers of layers
    /// before the states, ascending.
    ///
    /// # Errors
    /// The file belongs to another model or corpus or cannot be read or written, the disk is full,
    /// or the source fails or returns states that are not finite.
    pub fn fill(
        path: &Path,
        corpus: &Corpus,
        model: &str,
        dim: usize,
        layers: &[usize],
        source: &mut dyn HiddenStateSource,
        progress: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Option<HiddenStateCache>, TrainError> {
        let header = StatesHeader {
            version: VERSION,
            model: model.to_owned(),
            corpus: corpus.fingerprint(),
            dim,
            layers: layers.to_vec(),
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(TrainError::io("open", path))?;
        let start = header.write_or_check(&mut file, path)?;
        let mut cache = HiddenStateCache::new(path, file, header, start, corpus);
        let done = cache.texts_there()?;
        let texts = corpus.texts.len();
        let from = start + cache.first[done] * cache.row_bytes();
        let file = cache.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        file.set_len(from).map_err(TrainError::io("write", path))?;
        file.seek(SeekFrom::End(0)).map_err(TrainError::io("write", path))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut stopped = false;
        for (i, text) in corpus.texts.iter().enumerate().skip(done) {
            if !progress(i, texts) {
                stopped = true;
                break;
            }
            let states =
                source.states(&text.tokens, layers).map_err(|source| TrainError::Source { text: i, source })?;
            let bytes = encode(i, text.tokens.len(), dim, layers, &states)?;
            out.write_all(&bytes).map_err(TrainError::io("write", path))?;
        }
        out.flush().map_err(TrainError::io("write", path))?;
        drop(out);
        if stopped {
            return Ok(None);
        }
        progress(texts, texts);
        cache.check_length()?;
        Ok(Some(cache))
    }

    /// Opens a complete cache.
    ///
    /// # Errors
    /// The file cannot be read, belongs to another model or corpus, or ends early.
    pub fn open(
        path: &Path,
        corpus: &Corpus,
        model: &str,
        dim: usize,
        layers: &[usize],
    ) -> Result<HiddenStateCache, TrainError> {
        let header = StatesHeader {
            version: VERSION,
            model: model.to_owned(),
            corpus: corpus.fingerprint(),
            dim,
            layers: layers.to_vec(),
        };
        let mut file = File::open(path).map_err(TrainError::io("open", path))?;
        let start = match header.compare(&mut file, path)? {
            Some(start) => start,
            None => return Err(TrainError::bad(path, "it is empty")),
        };
        let cache = HiddenStateCache::new(path, file, header, start, corpus);
        cache.check_length()?;
        Ok(cache)
    }

    fn new(path: &Path, file: File, header: StatesHeader, start: u64, corpus: &Corpus) -> HiddenStateCache {
        let mut first = vec![0];
        for text in &corpus.texts {
            first.push(first[first.len() - 1] + text.tokens.len() as u64);
        }
        HiddenStateCache { path: path.to_owned(), file: Mutex::new(file), header, start, first }
    }

    /// The numbers of layers before its states, ascending.
    pub fn layers(&self) -> &[usize] {
        &self.header.layers
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Width of a state.
    pub fn dim(&self) -> usize {
        self.header.dim
    }

    /// Size of the file, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.start + self.first[self.first.len() - 1] * self.row_bytes()
    }

    /// Fingerprints of the model and of the corpus.
    pub(crate) fn fingerprints(&self) -> (&str, &str) {
        (&self.header.model, &self.header.corpus)
    }

    /// Appends the states of a text to `out`, one vector for each of the cache's layers. Shape of
    /// each: (token, dim).
    ///
    /// # Errors
    /// The file cannot be read or has become shorter.
    pub(crate) fn read(&self, text: usize, out: &mut [Vec<f32>]) -> Result<(), TrainError> {
        let rows = (self.first[text + 1] - self.first[text]) as usize;
        let (row_bytes, dim) = (self.row_bytes() as usize, self.header.dim);
        let mut bytes = vec![0; rows * row_bytes];
        let at = self.start + self.first[text] * row_bytes as u64;
        {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(at)).map_err(TrainError::io("read", &self.path))?;
            if let Err(e) = file.read_exact(&mut bytes) {
                drop(file);
                self.check_length()?;
                return Err(TrainError::io("read", &self.path)(e));
            }
        }
        for row in bytes.chunks_exact(row_bytes) {
            for (state, out) in row.chunks_exact(state_bytes(dim)).zip(out.iter_mut()) {
                decode(state, dim, out);
            }
        }
        Ok(())
    }

    fn row_bytes(&self) -> u64 {
        (self.header.layers.len() * state_bytes(self.header.dim)) as u64
    }

    fn file_len(&self) -> Result<u64, TrainError> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.metadata().map_err(TrainError::io("read", &self.path))?.len())
    }

    /// Number of complete texts.
    fn texts_there(&self) -> Result<usize, TrainError> {
        let rows = (self.file_len()? - self.start) / self.row_bytes().max(1);
        Ok(self.first.partition_point(|first| *first <= rows) - 1)
    }

    fn check_length(&self) -> Result<(), TrainError> {
        let (expected, got) = (self.size_bytes(), self.file_len()?);
        if got < expected {
            return Err(TrainError::Truncated { path: self.path.clone(), expected, got });
        }
        Ok(())
    }
}

impl StatesHeader {
    /// Writes the header to an empty file, or checks the header of the file. Returns the start of
    /// the rows.
    fn write_or_check(&self, file: &mut File, path: &Path) -> Result<u64, TrainError> {
        if let Some(start) = self.compare(file, path)? {
            return Ok(start);
        }
        let line = serde_json::to_string(self).expect("a header is plain data") + "\n";
        file.write_all(line.as_bytes()).map_err(TrainError::io("write", path))?;
        Ok(line.len() as u64)
    }

    /// Checks that the header of the file is the same; `None` if the file is empty.
    fn compare(&self, file: &mut File, path: &Path) -> Result<Option<u64>, TrainError> {
        const LONGEST: u64 = 1 << 16;
        let mut line = Vec::new();
        let mut head = BufReader::new(file.take(LONGEST));
        head.read_until(b'\n', &mut line).map_err(TrainError::io("read", path))?;
        if line.is_empty() {
            return Ok(None);
        }
        let theirs: StatesHeader = match line.strip_suffix(b"\n").map(serde_json::from_slice) {
            Some(Ok(header)) => header,
            _ => return Err(TrainError::bad(path, "it is no cache of hidden states")),
        };
        let pairs = [
            ("version", theirs.version.to_string(), self.version.to_string()),
            ("model", theirs.model, self.model.clone()),
            ("set of texts", theirs.corpus, self.corpus.clone()),
            ("width", theirs.dim.to_string(), self.dim.to_string()),
            ("choice of layers", format!("{:?}", theirs.layers), format!("{:?}", self.layers)),
        ];
        match pairs.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            Some((what, theirs, ours)) => Err(TrainError::Mismatch { path: path.to_owned(), what, theirs, ours }),
            None => Ok(Some(line.len() as u64)),
        }
    }
}

fn state_bytes(dim: usize) -> usize {
    4 + 2 * dim
}

/// The rows of a text, checked.
fn encode(text: usize, len: usize, dim: usize, layers: &[usize], states: &[Vec<f32>]) -> Result<Vec<u8>, TrainError> {
    for (i, layers) in layers.iter().enumerate() {
        let (expected, got) = (len * dim, states.get(i).map_or(0, Vec::len));
        if expected != got {
            return Err(TrainError::StateCount { text, layers: *layers, expected, got });
        }
    }
    let mut bytes = Vec::with_capacity(len * layers.len() * state_bytes(dim));
    for position in 0..len {
        for (states, layers) in states.iter().zip(layers) {
            let state = &states[position * dim..][..dim];
            let largest = state.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            if !state.iter().all(|x| x.is_finite()) {
                return Err(TrainError::StateNotFinite { text, layers: *layers, position });
            }
            // The scale brings the largest value between 2^13 and 2^14, far from both ends of f16.
            let log = if largest > 0.0 { (largest.log2().floor() as i32 - 13).clamp(-126, 126) } else { 0 };
            let factor = (-log as f32).exp2();
            bytes.extend(log.to_le_bytes());
            state.iter().for_each(|x| bytes.extend(f16::from_f32(x * factor).to_le_bytes()));
        }
    }
    Ok(bytes)
}

fn decode(state: &[u8], dim: usize, out: &mut Vec<f32>) {
    let (log, values) = state.split_at(4);
    let scale = (i32::from_le_bytes([log[0], log[1], log[2], log[3]]) as f32).exp2();
    let values: Vec<f16> = values.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect();
    let from = out.len();
    out.resize(from + dim, 0.0);
    values.convert_to_f32_slice(&mut out[from..]);
    out[from..].iter_mut().for_each(|x| *x *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_any_size_keep_eleven_bits_of_their_largest_value() {
        for size in [1.0f32, 3e-30, 2e30, 70000.0, 1e-3] {
            let states: Vec<f32> = (0..3 * 40).map(|i| (i as f32 * 0.7).sin() * size).collect();
            let bytes = encode(0, 3, 40, &[5], std::slice::from_ref(&states)).expect("finite");
            let mut back = Vec::new();
            bytes.chunks_exact(state_bytes(40)).for_each(|state| decode(state, 40, &mut back));
            let worst = states.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(back.len() == states.len() && worst <= size / 2048.0, "{size}: off by {worst}");
        }
        let zeros = encode(0, 1, 4, &[1, 2], &[vec![0.0; 4], vec![0.0; 4]]).expect("finite");
        let mut back = Vec::new();
        decode(&zeros[..12], 4, &mut back);
        assert_eq!(back, [0.0; 4]);
    }
}
