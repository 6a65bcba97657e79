//! What is measured and proved on the user's machine: losslessness, speed, and where time goes.
//!
//! Each part takes plain options and a running model, tells its progress through [`StageProgress`],
//! and returns data. Nothing here prints, and nothing here ends the process.
//!
//! ```no_run
//! use selfspec_engine::LoadedModel;
//! use selfspec_lab::prompts;
//! use selfspec_lab::verify::{VerifyOptions, verify};
//!
//! let loaded = LoadedModel::open("model.gguf".as_ref(), None)?;
//! let proof = verify(&loaded, prompts::built_in(), &VerifyOptions::default(), &())?;
//! assert!(proof.ok(), "{:?}", proof.first_mismatch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod bench;
pub mod doctor;
mod error;
mod exit_layer;
mod fixed_drafts;
mod http;
mod markdown;
pub mod measure;
mod progress;
pub mod prompts;
pub mod rollout;
pub mod serve_bench;
pub mod statistics;
pub mod training;
pub mod tune;
pub mod verify;

pub use error::LabError;
pub use exit_layer::{ExitLayerError, exit_plan};
pub use markdown::markdown_table;
pub use progress::{LabNote, StageProgress};
