//! Tests of the speculate crate through its public interface.

mod auto;
mod choosing;
mod common;
mod gate;
mod mask;
mod rollback;
mod stopping;
