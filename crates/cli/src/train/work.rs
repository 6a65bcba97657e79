//! The working folder of a training: what each stage leaves, so that a run that was ended goes on where it was.

use std::path::{Path, PathBuf};

use anyhow::Context;
use selfspec_hub::FileLock;
use selfspec_train::TrainError;

use crate::failure::{hinted, usage};
use crate::output::bytes as bytes_of;

/// What to do about a file in it that cannot be used.
const START_ANEW: &str = "delete it, or name another working folder with --work";

/// What a run that the user ended says of the next one.
pub(crate) const GO_ON: &str = "the same command goes on from there";

/// A working folder, in which no other run works meanwhile.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    path: PathBuf,
    made: bool,
    lock: Option<FileLock>,
}

impl WorkFolder {
    /// The folder at `path`, made if it is not there; else that of an output file, beside it.
    ///
    /// # Errors
    /// Another run works in it, or it cannot be made.
    pub(crate) fn open(path: Option<&Path>, out: &Path) -> anyhow::Result<Self> {
        let path = path.map_or_else(|| beside(out), Path::to_owned);
        let made = !path.exists();
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let mut folder = WorkFolder { path, made, lock: None };
        folder.lock = FileLock::try_take(&folder.file("lock"))?;
        if folder.lock.is_none() {
            let what = format!("--work {}: another run is working in it", folder.path.display());
            return Err(usage(what, "--work names another folder"));
        }
        Ok(folder)
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What to say of it when all is done.
    pub(crate) fn done(&self) -> String {
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let bytes = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        format!(
            "{} ({}) is not needed any more; with it the same command need not begin anew",
            self.path.display(),
            bytes_of(bytes)
        )
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error, with the remedy where a file in this folder is at fault.
    pub(crate) fn remedy(&self, error: TrainError) -> anyhow::Error {
        let at_fault = match &error {
            TrainError::Mismatch { path, .. }
            | TrainError::BadFile { path, .. }
            | TrainError::Truncated { path, .. } => path.starts_with(&self.path),
            _ => false,
        };
        if at_fault { hinted(error.to_string(), START_ANEW) } else { error.into() }
    }
}

impl Drop for WorkFolder {
    /// Leaves no folder behind that nothing was put into.
    fn drop(&mut self) {
        drop(self.lock.take());
        if self.made {
            let _ = std::fs::remove_dir(&self.path); // fails where there is something in it
        }
    }
}

/// The working folder of an output that has none of its own.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".work");
    name.into()
}

/// A file in a working folder that is not of this run.
pub(crate) fn stale(path: &Path, why: &str) -> anyhow::Error {
    hinted(format!("{}: {why}", path.display()), START_ANEW)
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
