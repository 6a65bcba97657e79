//! Development only: tiny models made at test time, files that are wrong on purpose, and a fake
//! target.
//!
//! [`TinyModel`] draws a model of any supported family and writes it as a GGUF file or a Hugging
//! Face folder; [`GgufBuilder`] and [`FolderBuilder`] let a test change or break anything before
//! the bytes are made. Everything is a function of a seed. Being for tests, it panics where a test
//! is wrong.
#![forbid(unsafe_code)]

pub mod blocks;
mod exit_head;
pub mod fake_target;
pub mod faulty_backend;
mod folder;
mod gguf;
mod random;
pub mod real_model;
mod tiny;
mod vocab;

pub use exit_head::TinyExitHead;
pub use folder::{FolderBuilder, FolderTensor};
pub use gguf::{GgufBuilder, GgufBytes, GgufTensor, Value};
pub use random::Random;
pub use selfspec_weights::TensorType;
pub use tiny::{Dims, Family, Scaling, TinyModel};
pub use vocab::Vocab;
