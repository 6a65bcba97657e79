//! What the hub tells while it works.

use std::path::Path;

/// Something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A source of an alias is tried.
    Source {
        /// The alias.
        name: &'a str,
        /// The source.
        source: &'a str,
    },
    /// A source failed; the next one, if any, is tried.
    SourceFailed {
        /// The source.
        source: &'a str,
        /// What it said, on one line.
        error: &'a str,
    },
    /// Another process fetches the same name; this one waits for it.
    Waiting {
        /// The lock file that the other process holds.
        lock: &'a Path,
    },
    /// A cached file is not used.
    Discarded {
        /// The file.
        path: &'a Path,
        /// Why, on one line.
        why: &'a str,
    },
    /// Work with a known or unknown number of bytes begins.
    Start {
        /// What is done: `download`, `unpack`, `verify`.
        verb: &'static str,
        /// What it is done to.
        what: &'a str,
        /// Bytes in all, if known.
        bytes: Option<u64>,
    },
    /// Bytes done since the last [`Event::Start`], in all.
    Bytes(u64),
    /// The work that the last [`Event::Start`] announced is done.
    Finish,
}

/// Listens to the hub.
pub trait Progress {
    /// Called for every event, on the thread that called the hub.
    fn event(&self, event: &Event<'_>);
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _event: &Event<'_>) {}
}
