//! The one forward pass, its KV cache, and the architectures that are data for it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod plan;

pub use backend::{Backend, BackendError, Enter, Row, SeqId, StepOutput, TokenId};
pub use plan::{LayerPlan, PlanError};
