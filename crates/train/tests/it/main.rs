//! Tests of the train crate through its public interface.

mod backbone;
mod training;
