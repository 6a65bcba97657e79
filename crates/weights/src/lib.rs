//! Bytes on disk to named, typed tensors and metadata.
//!
//! A [`Checkpoint`] is a GGUF file (version 2 or 3, single or sharded) or a Hugging Face folder
//! (`config.json` and safetensors, single or sharded). Files are memory-mapped and read
//! little-endian. Tensors are slices of the file's own bytes.
//!
//! Invariant: **nothing in a file is trusted.** Every count, length and offset is checked with
//! checked arithmetic before it is used. No allocation is larger than the file's own size
//! justifies. Every fault is a [`WeightsError`], one line with the file, the field or tensor, and
//! the byte offset. [`Checkpoint::open`] checks the whole: every tensor lies inside its file,
//! overlaps no other, and is as long as its shape and type say. Which tensors must exist, and with
//! which shapes, is checked by the model.
//!
//! [`GgufWriter`] and [`write_safetensors`] write the same formats, one tensor in memory at a time.

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
mod open;
mod safetensors;
mod safetensors_writer;
mod shards;
mod types;

pub use checkpoint::{Checkpoint, Source, Tensor, TensorInfo};
pub use error::{FilePlace, WeightsError};
pub use gguf_writer::GgufWriter;
pub use metadata::Metadata;
pub use safetensors_writer::write_safetensors;
pub use types::TensorType;
