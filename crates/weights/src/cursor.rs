//! A bounded reader over a file's bytes that knows where it is, for errors.

use std::fmt::Display;
use std::path::Path;

use crate::error::{FilePlace, WeightsError};

/// Reads little-endian numbers and strings from `bytes`, never beyond their end.
pub(crate) struct Cursor<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a Path, bytes: &'a [u8]) -> Self {
        Cursor { file, bytes, pos: 0 }
    }

    /// Starts reading at byte `pos`, which lies in the file.
    pub(crate) fn starting_at(file: &'a Path, bytes: &'a [u8], pos: usize) -> Self {
        debug_assert!(pos <= bytes.len());
        Cursor { file, bytes, pos }
    }

    /// Byte offset of the next read.
    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// `field` at byte `offset` of this file.
    pub(crate) fn at(&self, field: impl Display, offset: usize) -> FilePlace {
        FilePlace::new(self.file, field, offset as u64)
    }

    /// The next `len` bytes of `field`.
    pub(crate) fn take(&mut self, len: u64, field: impl Display) -> Result<&'a [u8], WeightsError> {
        let available = self.left() as u64;
        if len > available {
            return Err(WeightsError::Truncated { at: self.at(field, self.pos), needed: len, available });
        }
        let bytes = &self.bytes[self.pos..][..len as usize];
        self.pos += len as usize;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: impl Display) -> Result<[u8; N], WeightsError> {
        let bytes = self.take(N as u64, field)?;
        Ok(bytes.try_into().expect("take returns exactly as many bytes as asked"))
    }

    pub(crate) fn u32(&mut self, field: impl Display) -> Result<u32, WeightsError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: impl Display) -> Result<u64, WeightsError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A GGUF string: a u64 length, then as many bytes of UTF-8.
    #[inline]
    pub(crate) fn string(&mut self, limit: u64, field: impl Display) -> Result<&'a str, WeightsError> {
        // Vocabularies have hundreds of thousands of strings: the way without faults is short.
        let rest = &self.bytes[self.pos..];
        if let Some((len, rest)) = rest.split_first_chunk() {
            let len = u64::from_le_bytes(*len);
            if len <= limit
                && len <= rest.len() as u64
                && let Ok(s) = std::str::from_utf8(&rest[..len as usize])
            {
                self.pos += 8 + len as usize;
                return Ok(s);
            }
        }
        self.string_fault(limit, &field)
    }

    #[cold]
    fn string_fault(&mut self, limit: u64, field: &dyn Display) -> Result<&'a str, WeightsError> {
        let start = self.pos;
        let len = self.u64(format_args!("length of {field}"))?;
        if len > limit && len <= self.left() as u64 {
            return Err(WeightsError::TooLong { at: self.at(field, start), len, limit });
        }
        let bytes = self.take(len, field)?;
        std::str::from_utf8(bytes).map_err(|e| WeightsError::Utf8 { at: self.at(field, start + 8 + e.valid_up_to()) })
    }
}
