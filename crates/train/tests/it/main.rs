//! Tests of the train crate through its public interface, in one program: linking takes most of the time.

mod backbone;
mod training;
