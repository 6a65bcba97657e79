//! How an engine is set up.

use selfspec_kernels::{Isa, KvType};

use crate::fault::EngineFault;

/// How an engine is set up. `Default` asks for what the machine and the model offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Threads that compute; the engine's own thread is one of them. `None`: one for each core that
    /// this process may use.
    pub threads: Option<usize>,
    /// Instruction set. `None`: the best that the processor has, or what `SELFSPEC_ISA` names.
    pub isa: Option<Isa>,
    /// Longest sequence, in positions. `None`: what the model was made for.
    pub context: Option<usize>,
    /// Bytes for the KV cache, shared by all sequences. `None`: room for one sequence of the whole
    /// context, and for [`EngineOptions::max_batch`] short ones.
    pub kv_bytes: Option<usize>,
    /// What the KV cache holds its numbers in. It changes what the model computes, as the type of
    /// its weights does.
    pub kv_type: KvType,
    /// Most sequences in one step; others wait.
    pub max_batch: usize,
    /// Most prompt rows in one step, shared fairly by the sequences that read their prompts.
    pub prefill_chunk: usize,
    /// Keep the KV of requests that are over, as long as nobody wants its pages, for requests that
    /// begin with the same tokens.
    pub prefix_cache: bool,
    /// What the engine does wrong on purpose: for tests of what finds faults.
    pub fault: Option<EngineFault>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            threads: None,
            isa: None,
            context: None,
            kv_bytes: None,
            kv_type: KvType::default(),
            max_batch: 8,
            prefill_chunk: 256,
            prefix_cache: false,
            fault: None,
        }
    }
}

impl EngineOptions {
    /// The number of threads that [`EngineOptions::threads`] comes to on this machine.
    pub fn resolved_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())).max(1)
    }
}
