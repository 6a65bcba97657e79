//! Why a kernel refuses its input.

use crate::format::Format;

/// Why packing, allocating or choosing an instruction set failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A matrix with no rows or no columns.
    #[error("a {format} matrix of {n} rows and {k} columns is empty")]
    Empty {
        /// Format of the matrix.
        format: Format,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// The row length is not a whole number of the format's blocks.
    #[error("a row of {k} values is not a whole number of {format} blocks of {block_len}")]
    PartialBlock {
        /// Format of the matrix.
        format: Format,
        /// Columns.
        k: usize,
        /// Values in a block.
        block_len: usize,
    },
    /// The bytes do not have the length that the shape asks for.
    #[error("a {format} matrix of {n} rows and {k} columns takes {expected} bytes, got {got}")]
    WrongLength {
        /// Format of the matrix.
        format: Format,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// A size that does not fit the address space.
    #[error("the size of {what} overflows")]
    Overflow {
        /// What was to be sized.
        what: &'static str,
    },
    /// The operating system gave no memory.
    #[error("no memory for {bytes} bytes of {what}")]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
    },
    /// A name that stands for no instruction set.
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
    /// A name that stands for no type of the KV cache.
    #[error("unknown type of the KV cache \"{name}\", known are f16, q8")]
    UnknownKvType {
        /// The name given.
        name: String,
    },
}
