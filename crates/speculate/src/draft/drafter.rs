//! What every way to draft has in common.

use std::fmt;

use selfspec_model::TokenId;

use crate::draft::path::DraftPath;
use crate::sample::history::History;
use crate::sample::mask::Mask;
use crate::sample::noise::Place;
use crate::sample::sampler::{Draft, Sampler};
use crate::stats::DrafterKind;

/// Proposes tokens. A drafter holds nothing that rounds could leave stale: what it proposes depends on the committed tokens and on
/// the logits of this round's rows.
pub trait Drafter: fmt::Debug + Send {
    /// Which drafter it is.
    fn kind(&self) -> DrafterKind;

    /// How its rows run through the model; `None` if it drafts without running it.
    fn path(&self) -> Option<&DraftPath> {
        None
    }

    /// The acceptance to be expected of it before anything was measured here, if it is known from elsewhere.
    fn prior(&self) -> Option<f64> {
        None
    }

    /// Whether it has something to propose after the committed `tokens`, of which `forced` must come next. `Some` is the kind of proposal, for
    /// the record of how such proposals fare, below 9: the length of the match for what copies, 0 for the others.
    fn offer(&mut self, tokens: &[TokenId], forced: &[TokenId]) -> Option<usize>;

    /// Appends up to `k` tokens that it proposes without running rows, as last offered; with a path there are none.
    fn copy(&mut self, _tokens: &[TokenId], _k: usize, _drafts: &mut Vec<Draft>) {}

    /// Proposes the token at `at` from the logits of a row of its path, of those in the mask; `None` ends the draft before it, which is so where the row's confidence
    /// is below `min_confidence`. Without a path there is nothing to read.
    fn read(
        &mut self,
        _logits: &[f32],
        _mask: Option<&Mask>,
        _sampler: &mut Sampler,
        _history: &History,
        _at: Place,
        _min_confidence: f32,
    ) -> Option<Draft> {
        None
    }
}
