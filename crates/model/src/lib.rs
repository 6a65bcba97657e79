//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod plan;

mod arch;
mod cpu;
mod dense;
mod error;
mod exit;
mod fault;
mod forward;
mod kv;
mod model;
mod profile;
mod rope;

pub use arch::config::{ArchConfig, Architecture, LocalAttention, RopeScaling};
pub use arch::names::{LayerTensor, Names};
pub use backend::{Backend, BackendError, Enter, ExitHeadInfo, Readout, Row, SeqId, StepOutput, TokenId};
pub use cpu::{CpuBackend, CpuOptions};
pub use dense::{DenseLayer, Rotations};
pub use error::ModelError;
pub use exit::card::ExitHeadCard;
pub use exit::draft_heads::DraftHeads;
pub use exit::head::{ExitHead, ExitHeadError};
pub use exit::vocab::{DraftVocab, DraftVocabError};
pub use fault::Fault;
pub use model::Model;
pub use plan::{LayerPlan, PlanError};
pub use profile::{Part, PartSeconds, Profiler};
