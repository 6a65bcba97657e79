//! Work on a long input, which would delay the answers of other requests.

/// Input size in bytes from which moving the other requests to another thread pays.
const LARGE: usize = 32 << 10;

/// Runs `work` on an input of this many bytes. If that is long, other threads take over the other
/// requests meanwhile.
pub(crate) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE { work() } else { tokio::task::block_in_place(work) }
}
