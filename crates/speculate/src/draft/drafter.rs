//! The properties that the round and the policy need of a drafter.
//!
//! A drafter is data: the path that its draft rows run, or the tokens that it copies. Sampling is
//! the round's, so that every drafter shares the one sampler.
//!
//! Invariant: a drafter holds no state that a round could leave stale. Its proposals depend on the
//! committed tokens, and on the logits of this round's rows.

use std::fmt;

use selfspec_model::TokenId;

use crate::draft::kind::DrafterKind;
use crate::draft::path::DraftPath;
use crate::sample::sampler::DraftToken;

/// Kinds of offer that a drafter may distinguish: [`Drafter::offer`] returns a number below this.
pub(crate) const OFFER_KINDS: usize = 9;

/// Proposes tokens, by copying them or by rows of the model.
pub(crate) trait Drafter: fmt::Debug + Send {
    /// Which drafter it is.
    fn kind(&self) -> DrafterKind;

    /// How its draft rows run through the model; `None` if it copies.
    fn path(&self) -> Option<&DraftPath> {
        None
    }

    /// The tokens of its draft logits, ascending; `None`: the whole vocabulary.
    fn vocab(&self) -> Option<&[TokenId]> {
        None
    }

    /// Confidence, a probability, below which it never proposes a token; 0: no bound.
    fn min_confidence(&self) -> f32 {
        0.0
    }

    /// Whether its confidence was trained to predict acceptance. An untrained confidence is tested
    /// before it is trusted.
    fn has_trained_confidence(&self) -> bool {
        false
    }

    /// The acceptance rate to expect before any draft was verified here, where it is known.
    fn expected_acceptance(&self) -> Option<f64> {
        None
    }

    /// Whether it has a proposal after the committed `tokens`, of which `forced` must come next.
    /// `Some` is the kind of offer, below [`OFFER_KINDS`]: acceptance is recorded for each kind. A
    /// drafter that copies returns the length of its match in tokens, the others 0.
    fn offer(&mut self, tokens: &[TokenId], forced: &[TokenId]) -> Option<usize>;

    /// Appends up to `k` tokens that it copies, as last offered. A drafter with a path copies none.
    fn copy(&mut self, _tokens: &[TokenId], _k: usize, _drafts: &mut Vec<DraftToken>) {}
}
