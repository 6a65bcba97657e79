//! A step whose rows have been checked: all that an executor needs to run it.

use crate::kv::place::{AuxiliaryWork, PageCopy, RowPlace};
use crate::kv::sequence::SequenceIndex;
use crate::row::Row;

/// The rows of one step, each with its entry layer, its pages and its slots.
///
/// The index has checked every row; an executor need not ask again. Page copies come before all
/// rows. In each layer, K and V of all active rows are written before any of them attends.
#[derive(Debug, Clone, Copy)]
pub struct ValidatedStep<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) places: &'a [RowPlace],                 // (row)
    pub(crate) sequences: &'a [Option<SequenceIndex>], // (SeqId)
    pub(crate) copies: &'a [PageCopy],
}

impl<'a> ValidatedStep<'a> {
    /// The rows, in the order of the call.
    pub fn rows(&self) -> &'a [Row] {
        self.rows
    }

    /// Pages to copy before the rows run.
    pub fn copies(&self) -> &'a [PageCopy] {
        self.copies
    }

    /// The layer where row `i` enters.
    pub fn first_layer(&self, i: usize) -> usize {
        self.places[i].first_layer
    }

    /// Whether row `i` runs `layer` in this step.
    pub fn runs(&self, i: usize, layer: usize) -> bool {
        layer >= self.places[i].first_layer && self.rows[i].plan.runs(layer)
    }

    /// The pages of row `i`'s sequence, up to the row's own. Shape: (position / page_positions).
    pub fn pages(&self, i: usize) -> &'a [u32] {
        let seq = self.rows[i].seq.0 as usize;
        &self.sequences[seq].as_ref().expect("the index checked that the sequence is live").pages
    }

    /// The slot of the kept state from which row `i` enters; `None`: it enters from its token.
    pub fn enter_slot(&self, i: usize) -> Option<u32> {
        self.places[i].enter
    }

    /// The slot in which row `i` keeps its hidden state after its plan's exact prefix.
    pub fn keep_slot(&self, i: usize) -> Option<u32> {
        self.places[i].keep
    }

    /// What row `i` does in the auxiliary layer.
    pub fn auxiliary(&self, i: usize) -> Option<AuxiliaryWork> {
        self.places[i].auxiliary
    }
}
