//! A broken rule and where.

use std::fmt;

/// One broken rule. Ordered by place, so that a report reads file by file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// What is wrong, without a final period.
    pub what: String,
}

impl Finding {
    /// A finding at a place.
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}
