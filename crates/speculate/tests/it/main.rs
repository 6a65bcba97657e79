//! Tests of the speculate crate through its public interface, in one program: linking takes most of the time.

mod auto;
mod choosing;
mod common;
mod gate;
mod mask;
mod rollback;
mod stopping;
