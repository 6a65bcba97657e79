//! Output paths, checked at the beginning of a command, before hours of work.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::Context;

use crate::failure::usage;

/// Refuses an output that cannot be written. `what` is its name in messages; `file`: it must not be
/// a folder.
///
/// # Errors
/// Its folder does not exist or takes no new file, or it is a folder itself.
pub(crate) fn check(what: &str, out: &Path, file: bool) -> anyhow::Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(usage(format!("{what} {}: there is no folder {}", out.display(), folder.display()), None));
    }
    if out.is_dir() {
        let why = || usage(format!("{what} {}: that is a folder, and a file is to be written", out.display()), None);
        return if file { Err(why()) } else { Ok(()) };
    }
    let cannot = || format!("{what}: cannot write {}", out.display());
    if out.exists() {
        OpenOptions::new().append(true).open(out).with_context(cannot)?;
    } else {
        File::create_new(out).and_then(|_| std::fs::remove_file(out)).with_context(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_and_nothing_is_left_or_lost() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("out");
        check("--out", &out, true).expect("a new file");
        assert!(!out.exists());
        std::fs::write(&out, "kept").expect("written");
        check("--out", &out, true).expect("a file that is there");
        assert_eq!(std::fs::read(&out).expect("there"), b"kept");
        let why = |path: &Path| check("--out", path, true).expect_err("refused").to_string();
        assert!(why(dir.path()).ends_with("that is a folder, and a file is to be written"));
        assert!(why(&dir.path().join("a").join("b")).contains("there is no folder"));
        assert!(why(&out.join("b")).contains("there is no folder"));
        check("--out", dir.path(), false).expect("a folder is to be written");
    }
}
