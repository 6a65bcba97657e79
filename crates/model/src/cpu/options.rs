//! How a model is run on the CPU.

use selfspec_kernels::{Isa, KvType};

/// How a model is run on the CPU.
#[derive(Debug, Clone)]
pub struct CpuOptions {
    /// Instruction set.
    pub isa: Isa,
    /// Worker threads, the calling one included. At least 1.
    pub threads: usize,
    /// Longest sequence, in positions. The model's own context bounds it.
    pub context: usize,
    /// Positions that the KV cache holds over all sequences, rounded up to whole pages. The system
    /// backs a page with memory when it is first used.
    pub kv_positions: usize,
    /// The number format of the KV cache.
    pub kv_type: KvType,
}
