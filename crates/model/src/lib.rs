//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod plan;

mod cpu;
mod dense;
mod error;
mod exit;
mod fault;
mod forward;
mod kv;
mod model;
mod names;
mod profile;
mod rope;

pub use backend::{Backend, BackendError, Enter, ExitHeadInfo, Readout, Row, SeqId, StepOutput, TokenId};
pub use config::{ArchConfig, Architecture, LocalAttention, RopeScaling};
pub use cpu::{CpuBackend, CpuOptions};
pub use dense::{DenseLayer, Rotations};
pub use error::ModelError;
pub use exit::{DraftHeads, DraftVocab, DraftVocabError, ExitHead, ExitHeadCard, ExitHeadError};
pub use fault::Fault;
pub use model::Model;
pub use names::{LayerTensor, Names};
pub use plan::{LayerPlan, PlanError};
pub use profile::{Part, PartSeconds, Profiler};
