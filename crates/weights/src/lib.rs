//! Bytes on disk to named, typed tensors and metadata.
//!
//! A [`Checkpoint`] is a GGUF file (version 2 or 3, single or sharded) or a Hugging Face folder (`config.json` and
//! safetensors, single or sharded). Files are memory-mapped and read little-endian; tensors are handed out as the bytes
//! that lie in the file.
//!
//! **Nothing in a file is trusted.** Every count, length and offset is checked with checked arithmetic before it is used,
//! nothing is allocated beyond what the file's own size can hold, and every fault is a [`WeightsError`] that names the
//! file, the field or tensor, and the byte offset on one line. What [`Checkpoint::open`] returns has been checked as a
//! whole: every tensor lies inside its file, overlaps no other, and is as long as its shape and type say. What the tensors
//! *mean* (which must exist, with which shapes) is the model's to check.
//!
//! The other way, [`GgufWriter`] and [`write_safetensors`] write what is read here, one tensor at a time.

mod checkpoint;
mod cursor;
mod error;
mod fingerprint;
mod folder;
mod gguf;
mod gguf_writer;
mod json;
mod map;
mod metadata;
mod safetensors;
mod safetensors_writer;
mod shards;
mod types;

pub use checkpoint::{Checkpoint, Source, Tensor, TensorInfo};
pub use error::{At, WeightsError};
pub use gguf_writer::GgufWriter;
pub use metadata::Metadata;
pub use safetensors_writer::write_safetensors;
pub use types::TensorType;
