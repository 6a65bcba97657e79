//! Lockstep: cheap drafts of many sequences share steps of their own.
//!
//! A step takes as long as its most expensive row. If one sequence drafted while another verified,
//! every draft would cost a pass of the whole model, and speculation could not pay in a batch. So
//! cheap drafts run in steps of their own. A sequence that verifies or reads its prompt waits for
//! the sequences that still draft. That is a few short steps at most, since no sequence begins a
//! new round before it has verified.

use selfspec_model::Row;

/// A draft row is cheap if it runs at most one layer in this many. A sequence without speculation
/// must not wait long for the drafts of others.
const LAYERS_PER_CHEAP_LAYER: usize = 4;

fn is_cheap_draft(row: &Row) -> bool {
    !row.plan.is_full() && row.plan.cost_layers() * LAYERS_PER_CHEAP_LAYER <= row.plan.n_layers()
}

/// Keeps only the cheap drafts in a step that has some. The caller must call
/// [`Sequence::skip_step`](crate::Sequence::skip_step) for each sequence whose rows are gone.
pub fn keep_cheap_drafts(rows: &mut Vec<Row>) {
    if rows.iter().any(is_cheap_draft) {
        rows.retain(is_cheap_draft);
    }
}

#[cfg(test)]
mod tests {
    use selfspec_model::{Enter, LayerPlan, Readout, SeqId};

    use super::*;

    #[test]
    fn cheap_drafts_go_first_and_dear_ones_with_the_others() {
        let row = |seq, plan: LayerPlan| Row {
            seq: SeqId(seq),
            pos: 3,
            token: 1,
            enter: Enter::Token,
            plan,
            keep: false,
            readout: Readout::Head,
        };
        let exit = |layers| LayerPlan::exit(8, layers).expect("valid");
        let left = |mut rows: Vec<Row>| {
            keep_cheap_drafts(&mut rows);
            rows.iter().map(|r| r.seq.0).collect::<Vec<_>>()
        };
        let full = LayerPlan::full(8);
        assert_eq!(left(vec![row(0, full.clone()), row(1, exit(2)), row(2, full.clone()), row(3, exit(1))]), [1, 3]);
        assert_eq!(left(vec![row(0, full.clone()), row(1, exit(3))]), [0, 1]);
        assert_eq!(left(vec![row(0, full)]), [0]);
        assert!(left(Vec::new()).is_empty());
    }
}
