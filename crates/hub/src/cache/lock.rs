//! File locks: one process at a time fetches or removes a model, or works in a folder.
//!
//! The holder removes its lock file at the end. Another process may then have waited for a file
//! that is gone: a lock is valid only if the locked file is still the one at its path.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::HubError;
use crate::progress::{FetchEvent, FetchProgress};

/// A held lock. Dropping it releases the lock.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    _file: File, // closed after its path is removed: the next holder sees that and locks again
}

impl FileLock {
    /// Waits until no other process holds the lock.
    pub(crate) fn wait(path: &Path, progress: &dyn FetchProgress) -> Result<FileLock, HubError> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    progress.event(&FetchEvent::Waiting { lock: path });
                    file.lock().map_err(|e| HubError::io("lock", path, e))?;
                }
                Err(TryLockError::Error(e)) => return Err(HubError::io("lock", path, e)),
            }
            if is_at(&file, path) {
                return Ok(FileLock { path: path.to_owned(), _file: file });
            }
        }
    }

    /// The lock that the file at `path` stands for, which is made; `None` if another process holds
    /// it.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn try_take(path: &Path) -> Result<Option<FileLock>, HubError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(is_at(&file, path).then(|| FileLock { path: path.to_owned(), _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(HubError::io("lock", path, e)),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if cfg!(unix)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn open(path: &Path) -> Result<File, HubError> {
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    opened.map_err(|e| HubError::io("create", path, e))
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(locked), Ok(there)) => (locked.dev(), locked.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// On other systems files have no portable identity, and lock files stay.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::SilentFetch;

    #[test]
    fn one_thread_at_a_time_holds_the_lock_and_the_last_removes_its_file() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("x.lock");
        let (inside, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = FileLock::wait(&path, &SilentFetch).expect("taken");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                        turns.fetch_add(1, Ordering::SeqCst);
                        assert!(matches!(FileLock::try_take(&path), Ok(None)));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 400);
        assert!(!path.exists());
        assert!(matches!(FileLock::try_take(&path), Ok(Some(_))));
        assert!(FileLock::try_take(&path.join("below")).is_err());
    }
}
