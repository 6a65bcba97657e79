//! Tests of the hub crate through its public interface.

mod hf;
mod pypi;
mod support;
