//! Calls of functions: how models write them, and how they are found in an answer.

pub(crate) mod call;
pub(crate) mod call_reader;
pub(crate) mod json_scan;
pub(crate) mod style;
