//! Progress of a fetch, as events.

use std::fmt;
use std::path::Path;

/// One event of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchEvent<'a> {
    /// The hub tries a source of an alias.
    Source {
        /// The alias.
        name: &'a str,
        /// The source.
        source: &'a str,
    },
    /// A source failed. The hub tries the next one, if there is one.
    SourceFailed {
        /// The source.
        source: &'a str,
        /// Its error, on one line.
        error: &'a str,
    },
    /// Another process is fetching the same name, and this one waits for it.
    Waiting {
        /// The lock file that the other process holds.
        lock: &'a Path,
    },
    /// The hub does not use a cached file.
    Discarded {
        /// The file.
        path: &'a Path,
        /// Why, on one line.
        why: &'a str,
    },
    /// Work on some bytes begins.
    Start {
        /// The work: `download`, `unpack` or `verify`.
        verb: &'static str,
        /// The file or package.
        what: &'a str,
        /// Total number of bytes, if known.
        bytes: Option<u64>,
    },
    /// Bytes done since the last [`FetchEvent::Start`].
    Bytes(u64),
    /// The work that the last [`FetchEvent::Start`] announced is done.
    Finish,
}

/// A line for people.
impl fmt::Display for FetchEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchEvent::Source { name, source } => write!(f, "fetching {name} from {source}"),
            FetchEvent::SourceFailed { source, error } => write!(f, "{source}: {error}"),
            FetchEvent::Waiting { lock } => {
                write!(f, "another process fetches the same model, waiting for it ({})", lock.display())
            }
            FetchEvent::Discarded { path, why } => write!(f, "{}: {why}", path.display()),
            FetchEvent::Start { verb, what, bytes: Some(bytes) } => write!(f, "{verb} {what}, {bytes} bytes"),
            FetchEvent::Start { verb, what, bytes: None } => write!(f, "{verb} {what}"),
            FetchEvent::Bytes(bytes) => write!(f, "{bytes} bytes done"),
            FetchEvent::Finish => f.write_str("done"),
        }
    }
}

/// Receives the events of a fetch. Closures that take an event implement it.
pub trait FetchProgress {
    /// Receives one event, on the thread that called the hub.
    fn event(&self, event: &FetchEvent<'_>);
}

/// Ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentFetch;

impl FetchProgress for SilentFetch {
    fn event(&self, _event: &FetchEvent<'_>) {}
}

impl<F: Fn(&FetchEvent<'_>)> FetchProgress for F {
    fn event(&self, event: &FetchEvent<'_>) {
        self(event);
    }
}
