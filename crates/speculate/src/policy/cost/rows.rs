//! Rows of steps, for tests.

use selfspec_model::{Enter, LayerPlan, Readout, Row, SeqId};

/// A row of sequence `seq` at position 0.
pub(crate) fn row(seq: u32, enter: Enter, plan: &LayerPlan) -> Row {
    Row { seq: SeqId(seq), pos: 0, token: 0, enter, plan: plan.clone(), keep: false, readout: Readout::Head }
}

/// A row of plain decoding in a model of `n_layers` layers.
pub(crate) fn plain_row(n_layers: usize) -> Row {
    row(0, Enter::Token, &LayerPlan::full(n_layers))
}
