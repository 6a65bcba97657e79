//! The API: one file a dialect or path, and what they share.

pub(crate) mod answer;
pub(crate) mod calls;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod constraint;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod format;
pub(crate) mod heavy;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod openapi;
pub(crate) mod prediction;
pub(crate) mod probes;
pub(crate) mod request;
pub(crate) mod speculation;
pub(crate) mod stream;
pub(crate) mod tokens;
pub(crate) mod tools;
