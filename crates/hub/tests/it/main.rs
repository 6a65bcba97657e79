//! Tests of the hub crate through its public interface, in one program: linking takes most of the time.

mod hf;
mod pypi;
mod support;
