//! How a model is run on the CPU.

use selfspec_kernels::{Isa, KvType};

/// How a model is run on the CPU.
#[derive(Debug, Clone)]
pub struct CpuOptions {
    /// Instruction set.
    pub isa: Isa,
    /// Worker threads, the calling one included; at least 1.
    pub threads: usize,
    /// Longest sequence, in positions; at most the model's own context is used.
    pub context: usize,
    /// Positions that the KV cache holds over all sequences, rounded up to whole pages. Memory is taken as pages are first used.
    pub kv_positions: usize,
    /// What the KV cache holds its numbers in.
    pub kv_type: KvType,
}
