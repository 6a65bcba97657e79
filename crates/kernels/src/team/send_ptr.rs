//! [`SendPtr`]: a pointer that several threads use, each for its own range.

/// A pointer that the parts of a job share, each for its own range.
pub(crate) struct SendPtr<T>(pub(crate) *mut T);

impl<T> SendPtr<T> {
    /// The pointer. A method, so that closures capture the wrapper and not the bare pointer in it.
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: moving the pointer alone is harmless; each place that reads or writes through it says why
// that is sound.
unsafe impl<T: Send> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SendPtr<T> {}
