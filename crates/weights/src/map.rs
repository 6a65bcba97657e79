//! The bytes of a file: mapped, or held (tests and fuzzing). The only unsafe code of the crate is
//! here.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::WeightsError;

/// A file's bytes.
pub(crate) enum FileBytes {
    /// A read-only mapping.
    Mapped(Mmap),
    /// Held in memory.
    Held(Vec<u8>),
}

impl FileBytes {
    /// Maps a regular file that is not empty.
    pub(crate) fn map(path: &Path) -> Result<FileBytes, WeightsError> {
        let io = |doing| move |source| WeightsError::Io { file: path.to_path_buf(), doing, source };
        // A pipe or a terminal would block when it is opened, so look before.
        let kind = std::fs::metadata(path).map_err(io("open"))?;
        if !kind.is_file() {
            return Err(WeightsError::NotAFile { file: path.to_path_buf() });
        }
        let file = File::open(path).map_err(io("open"))?;
        if file.metadata().map_err(io("read"))?.len() == 0 {
            return Err(WeightsError::Empty { file: path.to_path_buf() });
        }
        // SAFETY: the mapping is private to this struct, read-only, and handed out only as `&[u8]`
        // bound to its lifetime. What remains is that another process changes the file while it is
        // mapped. Model files are written once and then renamed into place (the hub does so), and
        // every reader of mapped models rests on that; a file that is cut short all the same ends
        // the process with SIGBUS when it is read, it does not read foreign memory.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        Ok(FileBytes::Mapped(map))
    }

    /// Drops the resident pages of `start..start + len` (clamped to the file); reading them again
    /// faults them in again.
    pub(crate) fn release(&self, start: usize, len: usize) {
        let FileBytes::Mapped(map) = self else { return };
        let start = start.min(map.len());
        let len = len.min(map.len() - start);
        if len == 0 {
            return;
        }
        #[cfg(unix)]
        {
            // SAFETY: DONTNEED is "unchecked" because on an anonymous or written private mapping it
            // loses data. This mapping is of a file and read-only, so the pages hold what the file
            // holds and are read from it again when touched: live `&[u8]` into it keep their
            // contents. The range lies in the mapping, as clamped above. A failure costs memory
            // only, so it is ignored.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len) };
        }
    }
}

impl std::ops::Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Held(bytes) => bytes,
        }
    }
}
