//! Hidden states that outlive a step, by the slots that the KV index hands out.

use crate::forward::scratch::grow;

/// Values of one width, by slot.
#[derive(Debug, Default)]
pub(crate) struct SlotValues(Vec<f32>); // (slot, width)

impl SlotValues {
    /// The value of a slot. Shape: (width).
    pub(crate) fn at(&self, slot: u32, width: usize) -> &[f32] {
        &self.0[slot as usize * width..][..width]
    }

    /// Writes the value of a slot. Its length is the width.
    pub(crate) fn set(&mut self, slot: u32, value: &[f32]) {
        let start = slot as usize * value.len();
        grow(&mut self.0, start + value.len());
        self.0[start..][..value.len()].copy_from_slice(value);
    }
}

/// What rows leave for later rows of their sequence, beside K and V.
#[derive(Debug, Default)]
pub(crate) struct RowStates {
    /// Hidden states of drafted rows after their plan's exact prefix. Shape: (slot, dim).
    pub(crate) hidden: SlotValues,
    /// The exit head's inputs from the same rows, as far as they have come. Shape: (slot, tap,
    /// dim).
    pub(crate) taps: SlotValues,
    /// Exact features of the exit head. Shape: (slot, feature, dim).
    pub(crate) features: SlotValues,
    /// The exit head's own states, which stand for features at drafted positions. Shape: (slot,
    /// dim).
    pub(crate) drafted: SlotValues,
}
