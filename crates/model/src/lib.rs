//! The one forward pass, its KV cache, and the architectures that are data for it.
//!
//! Invariant: the bits that a row produces depend only on its token, position and plan and on the K
//! and V before it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod plan;
pub mod row;

mod arch;
mod choice;
mod cpu;
mod draft;
mod error;
mod exit;
mod fault;
mod forward;
mod kv;
mod load;
mod output;
mod panels;
mod profile;
mod rope;
mod spec;

pub use arch::config::{ArchConfig, LocalAttention, RopeScaling};
pub use arch::family::Architecture;
pub use arch::names::{RowSlice, TensorNames, TensorPlace};
pub use arch::tensor::{LayerForm, LayerTensor, LayerValues, ModelTensor, Presence, TensorShape};
pub use backend::{Backend, BackendError};
pub use choice::{ChooseToken, LogitsError, NoChoice, TokenChoice, TokenLogprob};
pub use cpu::{CpuBackend, CpuExecutor, CpuOptions};
pub use draft::{DraftOutput, DraftRequest, DraftStep, DraftStopPlace, DraftStopRule};
pub use error::ModelError;
pub use exit::card::ExitHeadCard;
pub use exit::error::{DraftVocabError, ExitHeadError};
pub use exit::tensors::{ExitHeadForm, ExitHeadTensor};
pub use fault::BackendFault;
pub use forward::executor::Executor;
pub use forward::paged::PagedBackend;
pub use kv::place::{AuxiliaryWork, FeatureSource, PageCopy};
pub use kv::shape::DeviceShape;
pub use kv::step::ValidatedStep;
pub use load::sink::{SinkError, StoredMatrix, StoredTensor, WeightSink};
pub use output::{HiddenState, StepOutput, StepReadouts};
pub use panels::dense::Rotations;
pub use panels::draft_heads::DraftHeads;
pub use panels::draft_vocab::DraftVocab;
pub use panels::exit_head::ExitHead;
pub use panels::model::CpuModel;
pub use plan::{LayerPlan, PlanError};
pub use profile::{PartSeconds, PassPart, Profiler};
pub use row::{Enter, ExitHeadInfo, Readout, Row, SeqId, TokenId};
pub use spec::ModelSpec;
