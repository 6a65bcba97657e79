//! Drafts of a fixed length, as measurements take them.

use selfspec_speculate::{DraftLen, DrafterChoice, SpeculationParams};

/// Tokens drafted a round while acceptance is measured.
pub(crate) const DRAFT_LEN: usize = 4;

/// Drafts of a fixed length, whether they pay or not.
pub(crate) fn fixed_drafts(drafter: &DrafterChoice, draft_len: usize) -> SpeculationParams {
    SpeculationParams {
        drafter: drafter.clone(),
        draft_len: DraftLen::Fixed(draft_len),
        always: true,
        ..SpeculationParams::default()
    }
}
