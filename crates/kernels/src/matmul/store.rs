//! Memory for packed weights: zeroed, 2 MiB aligned, on huge pages where the system has them.
//!
//! The matrices of a small model are far smaller than a huge page, so they share chunks. They lie
//! one after the other in the order of packing, which is also the order in which a pass reads them.
//! A chunk is freed with its last matrix.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::KernelError;

const HUGE_PAGE: usize = 2 << 20;
/// Address space of a shared chunk, in bytes. Only the parts that are written take memory.
const CHUNK: usize = 64 << 20;
/// Matrices start at a multiple of this, so that a load of 64 bytes stays within a cache line.
const ALIGN: usize = 64;

/// The chunk that takes the next small matrix, as long as a matrix in it lives.
static CURRENT: Mutex<Weak<Chunk>> = Mutex::new(Weak::new());

/// A zeroed region of memory from the system.
struct Chunk {
    base: NonNull<u8>, // HUGE_PAGE aligned
    len: usize,
    used: Mutex<usize>, // bytes handed out from the start
    raw: Allocation,
}

// SAFETY: a chunk is plain memory; the parts that are handed out do not overlap, and each follows
// Rust's own borrowing.
unsafe impl Send for Chunk {}
// SAFETY: as above; `used` is behind a mutex.
unsafe impl Sync for Chunk {}

/// The allocation of a chunk, as the system needs it to free it.
#[cfg(target_os = "linux")]
struct Allocation {
    at: *mut libc::c_void,
    len: usize,
}
#[cfg(not(target_os = "linux"))]
struct Allocation {
    layout: std::alloc::Layout,
}

impl Chunk {
    #[cfg(target_os = "linux")]
    fn new(len: usize) -> Option<Chunk> {
        let raw_len = len.checked_add(HUGE_PAGE)?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory of ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                raw_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        let skip = (at as usize).next_multiple_of(HUGE_PAGE) - at as usize;
        // SAFETY: skip < HUGE_PAGE, so the pointer stays inside the mapping of len + HUGE_PAGE
        // bytes.
        let base = unsafe { at.cast::<u8>().add(skip) };
        // SAFETY: base..base + len lies within the mapping. The advice changes speed only, so its
        // failure is of no account.
        unsafe { libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE) };
        Some(Chunk { base: NonNull::new(base)?, len, used: Mutex::new(0), raw: Allocation { at, len: raw_len } })
    }

    #[cfg(not(target_os = "linux"))]
    fn new(len: usize) -> Option<Chunk> {
        let layout = std::alloc::Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout is not of size zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Chunk { base, len, used: Mutex::new(0), raw: Allocation { layout } })
    }

    /// Hands out `len` unused bytes; `None` if the chunk is full.
    fn take(self: &Arc<Chunk>, len: usize) -> Option<WeightMemory> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let end = used.checked_add(len)?.checked_next_multiple_of(ALIGN)?;
        if end > self.len {
            return None;
        }
        let offset = std::mem::replace(&mut *used, end);
        Some(WeightMemory { chunk: Arc::clone(self), offset, len })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the mapping was made in `new`, and every part of it holds an Arc of this chunk:
        // none is left.
        unsafe {
            libc::munmap(self.raw.at, self.raw.len)
        };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: allocated in `new` with this layout, and no part of it is left.
        unsafe {
            std::alloc::dealloc(self.base.as_ptr(), self.raw.layout)
        };
    }
}

/// Bytes of one matrix within a chunk.
pub(crate) struct WeightMemory {
    chunk: Arc<Chunk>,
    offset: usize,
    len: usize,
}

impl WeightMemory {
    /// `len` zeroed bytes, aligned to a cache line.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<WeightMemory, KernelError> {
        let no_memory = || KernelError::OutOfMemory { what, bytes: len };
        if len > CHUNK / 2 {
            let whole = len.checked_next_multiple_of(HUGE_PAGE).ok_or(KernelError::Overflow { what })?;
            let chunk = Arc::new(Chunk::new(whole).ok_or_else(no_memory)?);
            return chunk.take(len).ok_or_else(no_memory);
        }
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(storage) = current.upgrade().and_then(|chunk| chunk.take(len)) {
            return Ok(storage);
        }
        let chunk = Arc::new(Chunk::new(CHUNK).ok_or_else(no_memory)?);
        *current = Arc::downgrade(&chunk);
        chunk.take(len).ok_or_else(no_memory)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: offset + len <= chunk.len, the memory is initialised (zeroed by the system), and
        // this part of it is ours alone.
        unsafe { std::slice::from_raw_parts(self.chunk.base.as_ptr().add(self.offset), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and we hold the only reference to our part.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.base.as_ptr().add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeroed_aligned_and_apart() {
        let mut parts: Vec<WeightMemory> = [1, 63, 64, 65, 1 << 20, CHUNK / 2, CHUNK]
            .map(|n| WeightMemory::zeroed(n, "a test").expect("memory"))
            .into();
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(part.bytes().iter().all(|b| *b == 0), "part {i}");
            assert_eq!(part.bytes().as_ptr() as usize % ALIGN, 0);
            part.bytes_mut().fill(i as u8 + 1);
        }
        for (i, part) in parts.iter().enumerate() {
            assert!(part.bytes().iter().all(|b| *b == i as u8 + 1), "part {i} was overwritten");
        }
    }

    #[test]
    fn sizes_beyond_memory_are_refused() {
        assert!(matches!(WeightMemory::zeroed(usize::MAX, "a test"), Err(KernelError::Overflow { .. })));
        assert!(matches!(WeightMemory::zeroed(1 << 60, "a test"), Err(KernelError::OutOfMemory { .. })));
    }
}
