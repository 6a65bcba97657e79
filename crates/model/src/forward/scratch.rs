//! Buffers of the forward pass.

use selfspec_kernels::{Activations, AttentionRow};

/// Buffers of a step. They grow to the largest step and are kept, so that decoding does not
/// allocate.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) hidden: Vec<f32>,       // (row, dim)
    pub(crate) active: Vec<usize>,     // (active row): index of its row
    pub(crate) was_active: Vec<usize>, // `active` of the layer before
    pub(crate) taps: Vec<f32>,         // (row, tap, dim): states that the exit head reads
    pub(crate) head_hidden: Vec<f32>,  // (row, dim): the exit head's residual stream
    pub(crate) fused: Vec<f32>,        // (active row, 2 dim)
    pub(crate) input: Activations,
    pub(crate) query: Vec<f32>,                            // (active row, heads, head_dim)
    pub(crate) key: Vec<f32>,                              // (active row, kv_heads, head_dim)
    pub(crate) value: Vec<f32>,                            // (active row, kv_heads, head_dim)
    pub(crate) attended: Vec<f32>,                         // (active row, heads, head_dim)
    pub(crate) gated: Activations,                         // (active row, ffn_dim)
    pub(crate) out: Vec<f32>,                              // (active row, dim)
    pub(crate) attention_rows: Vec<AttentionRow<'static>>, // empty between layers: only its memory is kept
}

pub(crate) fn grow(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}

/// Reuses the memory of `rows` for rows of another lifetime: collecting an emptied vector in place
/// keeps its allocation.
pub(crate) fn recycled<'a>(mut rows: Vec<AttentionRow<'_>>) -> Vec<AttentionRow<'a>> {
    rows.clear();
    rows.into_iter().map(|_| unreachable!("the vector was emptied")).collect()
}
