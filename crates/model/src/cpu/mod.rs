//! The CPU's executor, and the backend made of it.

mod backend;
mod executor;
mod options;

pub use backend::CpuBackend;
pub use executor::CpuExecutor;
pub use options::CpuOptions;
