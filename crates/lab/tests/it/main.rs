//! Tests of the lab crate through its public interface, in one program: linking takes most of the time.

mod exactness;
mod measure;
mod reports;
