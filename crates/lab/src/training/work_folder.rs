//! The working folder of a training: the results of each stage, so that a run that was stopped
//! continues where it was.

use std::path::{Path, PathBuf};

use selfspec_hub::FileLock;
use selfspec_train::TrainError;

use super::error::TrainingError;

/// A working folder that one run holds.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
    made: bool,
    lock: Option<FileLock>,
}

impl WorkFolder {
    /// The folder at `path`, made if it is not there; without a path, the output file's name with
    /// `.work`.
    ///
    /// # Errors
    /// Another run works in it, or it cannot be made.
    pub fn open(path: Option<&Path>, out: &Path) -> Result<Self, TrainingError> {
        let path = path.map_or_else(|| beside(out), Path::to_owned);
        let made = !path.exists();
        std::fs::create_dir_all(&path).map_err(TrainingError::io("make the folder", &path))?;
        let mut folder = WorkFolder { path, made, lock: None };
        folder.lock = FileLock::try_take(&folder.file("lock"))?;
        if folder.lock.is_none() {
            return Err(TrainingError::WorkFolderInUse { folder: folder.path.clone() });
        }
        Ok(folder)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// The path of a file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The error; [`TrainingError::Stale`] if a file in this folder is at fault.
    pub(super) fn blame(&self, error: TrainError) -> TrainingError {
        match &error {
            TrainError::Mismatch { path, .. }
            | TrainError::BadFile { path, .. }
            | TrainError::Truncated { path, .. }
                if path.starts_with(&self.path) =>
            {
                let message = error.to_string();
                let why = message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&message);
                TrainingError::Stale { path: path.clone(), why: why.to_owned() }
            }
            _ => error.into(),
        }
    }
}

impl Drop for WorkFolder {
    /// Leaves no empty folder behind.
    fn drop(&mut self) {
        drop(self.lock.take());
        if self.made {
            let _ = std::fs::remove_dir(&self.path); // it fails if the folder is not empty
        }
    }
}

/// The working folder of an output that names none.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".work");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_works_in_a_folder_and_an_empty_one_goes_with_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("head");
        let first = WorkFolder::open(None, &out).expect("free");
        assert_eq!(first.path(), dir.path().join("head.work"));
        let why = WorkFolder::open(None, &out).expect_err("taken").to_string();
        assert!(why.ends_with("head.work: another run is working in it"), "{why}");
        drop(first);
        assert!(!dir.path().join("head.work").exists());
        let second = WorkFolder::open(None, &out).expect("free again");
        std::fs::write(second.file("answers.jsonl"), "x").expect("written");
        drop(second);
        assert!(dir.path().join("head.work").join("answers.jsonl").exists());
        let kept = dir.path().join("mine");
        std::fs::create_dir(&kept).expect("made");
        drop(WorkFolder::open(Some(&kept), &out).expect("free"));
        assert!(kept.exists(), "it was there before");
    }
}
