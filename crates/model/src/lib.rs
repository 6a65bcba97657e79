//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod plan;

mod cpu;
mod error;
mod forward;
mod model;
mod names;
mod pages;
mod profile;
mod rope;
mod sequence;

pub use backend::{Backend, BackendError, Enter, Row, SeqId, StepOutput, TokenId};
pub use config::{ArchConfig, Architecture, LocalAttention, RopeScaling};
pub use cpu::{CpuBackend, CpuOptions};
pub use error::ModelError;
pub use model::Model;
pub use plan::{LayerPlan, PlanError};
pub use profile::{Part, PartSeconds, Profiler};
