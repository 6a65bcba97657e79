//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod plan;
pub mod row;

mod arch;
mod choice;
mod cpu;
mod dense;
mod draft;
mod error;
mod exit;
mod fault;
mod forward;
mod kv;
mod model;
mod output;
mod profile;
mod rope;

pub use arch::config::{ArchConfig, Architecture, LocalAttention, RopeScaling};
pub use arch::names::{LayerTensor, Names};
pub use backend::{Backend, BackendError};
pub use choice::{ChooseToken, LogitsError, NoChoice, TokenChoice, TokenLogprob};
pub use cpu::{CpuBackend, CpuExecutor, CpuOptions};
pub use dense::{DenseLayer, Rotations};
pub use draft::{DraftOutput, DraftRequest, DraftStep, DraftStopPlace, DraftStopRule};
pub use error::ModelError;
pub use exit::card::ExitHeadCard;
pub use exit::draft_heads::DraftHeads;
pub use exit::head::{ExitHead, ExitHeadError};
pub use exit::vocab::{DraftVocab, DraftVocabError};
pub use fault::Fault;
pub use forward::executor::Executor;
pub use forward::paged::PagedBackend;
pub use kv::place::{AuxiliaryWork, FeatureSource, PageCopy};
pub use kv::shape::DeviceShape;
pub use kv::step::ValidatedStep;
pub use model::Model;
pub use output::{HiddenState, StepOutput, StepReadouts};
pub use plan::{LayerPlan, PlanError};
pub use profile::{Part, PartSeconds, Profiler};
pub use row::{Enter, ExitHeadInfo, Readout, Row, SeqId, TokenId};
