//! [`KernelError`]: why packing, allocating or parsing a name failed.

use crate::format::WeightFormat;

/// Why packing, allocating, or parsing the name of an instruction set or KV type failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A matrix with no rows or no columns.
    #[error("a {format} matrix of {n} rows and {k} columns is empty")]
    Empty {
        /// WeightFormat of the matrix.
        format: WeightFormat,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// The row length is not a whole number of the format's blocks.
    #[error("a row of {k} values is not a whole number of {format} blocks of {block_len}")]
    PartialBlock {
        /// WeightFormat of the matrix.
        format: WeightFormat,
        /// Columns.
        k: usize,
        /// Values in a block.
        block_len: usize,
    },
    /// The number of bytes does not match the shape.
    #[error("a {format} matrix of {n} rows and {k} columns takes {expected} bytes, got {got}")]
    WrongLength {
        /// WeightFormat of the matrix.
        format: WeightFormat,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// A size exceeds the address space.
    #[error("the size of {what} overflows")]
    Overflow {
        /// The thing being sized.
        what: &'static str,
    },
    /// The operating system refused the memory.
    #[error("no memory for {bytes} bytes of {what}")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
    },
    /// No instruction set has this name.
    #[error("unknown instruction set \"{name}\", known are scalar, avx2, avx512, neon")]
    UnknownIsa {
        /// The name given.
        name: String,
    },
    /// An instruction set that this processor lacks.
    #[error("this processor cannot run the instruction set {name}")]
    UnsupportedIsa {
        /// The name of the set.
        name: &'static str,
    },
    /// No type of the KV cache has this name.
    #[error("unknown type of the KV cache \"{name}\", known are f16, q8")]
    UnknownKvType {
        /// The name given.
        name: String,
    },
}
