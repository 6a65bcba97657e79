//! Whether and how far to draft, by measured costs and acceptance.

pub(crate) mod acceptance;
pub(crate) mod confidence;
pub(crate) mod controller;
pub(crate) mod cost;
pub(crate) mod reason;
pub(crate) mod window;
