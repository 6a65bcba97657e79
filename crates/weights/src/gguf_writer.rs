//! Writes GGUF files of version 3: metadata, tensor infos, and the tensors' data, one tensor in
//! memory at a time.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::io::{self, Write};

use crate::checkpoint::TensorInfo;

/// Alignment of the data: the format's default.
const ALIGNMENT: u64 = 32;

/// The metadata of a GGUF file in the making, in its order.
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    metadata: Vec<u8>,
    keys: u64,
}

impl GgufWriter {
    /// A file without metadata.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// Appends a key and its value as [`crate::Metadata::raw`] gives it: the type's id, then the
    /// value.
    pub fn raw(&mut self, key: &str, value: &[u8]) {
        string(&mut self.metadata, key);
        self.metadata.extend(value);
        self.keys += 1;
    }

    /// Appends a key with a whole number of 32 bits.
    pub fn u32(&mut self, key: &str, value: u32) {
        const ID: u32 = 4;
        self.raw(key, &[ID.to_le_bytes(), value.to_le_bytes()].concat());
    }

    /// Writes the file. `data` appends the bytes of each tensor, as many as its shape and
    /// type say, to an empty buffer.
    ///
    /// # Errors
    /// Those of `out`, and of `data`.
    ///
    /// # Panics
    /// If `data` appends another number of bytes.
    pub fn write(
        &self,
        out: &mut dyn Write,
        tensors: &[TensorInfo],
        data: &mut dyn FnMut(&TensorInfo, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut head = b"GGUF".to_vec();
        head.extend(3u32.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(self.keys.to_le_bytes());
        head.extend(&self.metadata);
        let mut offset = 0;
        for t in tensors {
            string(&mut head, &t.name);
            head.extend((t.shape.len() as u32).to_le_bytes());
            t.shape.iter().rev().for_each(|d| head.extend((*d as u64).to_le_bytes()));
            head.extend(t.ty.ggml_id().to_le_bytes());
            head.extend(u64::to_le_bytes(offset));
            offset += (t.size_bytes() as u64).next_multiple_of(ALIGNMENT);
        }
        pad(&mut head);
        out.write_all(&head)?;
        let mut bytes = Vec::new();
        for t in tensors {
            bytes.clear();
            data(t, &mut bytes)?;
            assert_eq!(bytes.len(), t.size_bytes(), "the data of {}", t.name);
            pad(&mut bytes);
            out.write_all(&bytes)?;
        }
        Ok(())
    }
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
}
