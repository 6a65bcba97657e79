//! The CPU's backend.

mod backend;

pub use backend::{CpuBackend, CpuOptions};
