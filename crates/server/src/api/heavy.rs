//! Work of a request that would hold up the answers of others.

/// From so many bytes on it is worth moving the others elsewhere.
const LARGE: usize = 32 << 10;

/// Runs `work` on `bytes` of input. While it is under way, other threads take care of the other requests.
pub(crate) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE { work() } else { tokio::task::block_in_place(work) }
}
