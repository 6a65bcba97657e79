//! Tests of the lab crate through its public interface.

mod exactness;
mod measure;
mod reports;
