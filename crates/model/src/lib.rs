//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod plan;

mod cpu;
mod dense;
mod draft_vocab;
mod error;
mod exit_head;
mod exit_head_card;
mod exit_head_pass;
mod fault;
mod forward;
mod model;
mod names;
mod pages;
mod profile;
mod rope;
mod sequence;

pub use backend::{Backend, BackendError, Enter, ExitHeadInfo, Readout, Row, SeqId, StepOutput, TokenId};
pub use config::{ArchConfig, Architecture, LocalAttention, RopeScaling};
pub use cpu::{CpuBackend, CpuOptions, DraftHeads};
pub use dense::{DenseLayer, Rotations};
pub use draft_vocab::{DraftVocab, DraftVocabError};
pub use error::ModelError;
pub use exit_head::{ExitHead, ExitHeadError};
pub use exit_head_card::ExitHeadCard;
pub use fault::Fault;
pub use model::Model;
pub use names::{LayerTensor, Names};
pub use plan::{LayerPlan, PlanError};
pub use profile::{Part, PartSeconds, Profiler};
