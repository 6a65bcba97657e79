//! Shared by the tests of sources: a cache in a temporary folder, wheels, a pip that serves them,
//! and a recorder of events.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use selfspec_hub::{FetchEvent, FetchProgress, HubOptions};
use tempfile::TempDir;

pub(crate) mod server;

/// A cache, a Hugging Face cache and a folder of wheels, all temporary.
pub(crate) struct Bench {
    pub dir: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("wheels")).expect("a folder for wheels");
        Bench { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Options that reach nothing but this folder.
    pub(crate) fn options(&self) -> HubOptions {
        HubOptions {
            home: self.path("home"),
            offline: false,
            force: false,
            hf_cache: self.path("hf"),
            hf_endpoint: "http://127.0.0.1:9".to_owned(),
            hf_token: None,
            pip: vec![vec![self.path("no-such-pip").display().to_string()]],
            connect_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(60), // a busy machine may be slow to serve
        }
    }

    /// Options whose pip serves the wheels of this folder and notes its calls in `pip.log`.
    pub(crate) fn with_pip(&self) -> HubOptions {
        let script = self.path("pip");
        let text = format!(
            "#!/bin/sh\n\
             case \"$*\" in *--version*) echo 'pip 99'; exit 0;; esac\n\
             echo \"$*\" >> '{log}'\n\
             while [ $# -gt 1 ]; do [ \"$1\" = -d ] && dir=$2; shift; done\n\
             if [ ! -f '{wheels}'/\"$1\".whl ]; then echo \"ERROR: No matching distribution found for $1\" >&2; exit 1; fi\n\
             cp '{wheels}'/\"$1\".whl \"$dir\"/\n",
            log = self.path("pip.log").display(),
            wheels = self.path("wheels").display(),
        );
        fs::write(&script, text).expect("a script");
        let missing = vec![self.path("no-such-pip").display().to_string()];
        HubOptions { pip: vec![missing, vec!["/bin/sh".to_owned(), script.display().to_string()]], ..self.options() }
    }

    /// Lines of pip's log.
    pub(crate) fn pip_calls(&self) -> Vec<String> {
        fs::read_to_string(self.path("pip.log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Puts a wheel where the fake pip finds it.
    pub(crate) fn wheel(&self, requirement: &str, members: &[(&str, &[u8])]) -> PathBuf {
        let path = self.path("wheels").join(format!("{requirement}.whl"));
        let mut zip = zip::ZipWriter::new(fs::File::create(&path).expect("a wheel"));
        for (name, content) in members {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).expect("a member");
            zip.write_all(content).expect("content");
        }
        zip.finish().expect("an archive");
        path
    }
}

/// Keeps the events of the hub.
#[derive(Default)]
pub(crate) struct Recorder(RefCell<Vec<String>>);

impl Recorder {
    pub(crate) fn told(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

impl FetchProgress for Recorder {
    fn event(&self, event: &FetchEvent<'_>) {
        if !matches!(event, FetchEvent::Bytes(_)) {
            self.0.borrow_mut().push(format!("{event:?}"));
        }
    }
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names of all files below a folder, relative to it.
pub(crate) fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => todo.push(path),
                path => found.push(path.strip_prefix(dir).expect("below the folder").display().to_string()),
            }
        }
    }
    found.sort();
    found
}
