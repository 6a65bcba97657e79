//! What a request gives: tokens and text, as events, to its consumer.

pub(crate) mod event;
pub(crate) mod generation;
pub(crate) mod output;
pub(crate) mod reasoning;
pub(crate) mod sink;
