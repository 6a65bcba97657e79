//! Which layers a row runs.
//!
//! A [`LayerPlan`] is a subset of the model's layers, run in ascending order. The full plan is the
//! model itself; every other plan is a way to draft. Only the leading run of layers, before the
//! first one that is left out, computes exactly what the model computes: that is
//! [`LayerPlan::exact_prefix`], and it decides what verification may reuse.

use std::fmt;
use std::sync::Arc;

/// A subset of the layers `0..n_layers`, run in ascending order. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LayerPlan {
    runs: Arc<[bool]>, // (layer): whether the layer is run
}

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan names a layer that the model lacks, or its bounds are out of order.
    #[error("layers {from}..{to} do not fit a model of {n_layers} layers")]
    OutOfRange {
        /// First layer named.
        from: usize,
        /// One past the last layer named.
        to: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// The plan runs no layer at all.
    #[error("the plan runs no layer")]
    Empty,
}

impl LayerPlan {
    /// Every layer: plain decoding, prefill and verification.
    pub fn full(n_layers: usize) -> Self {
        LayerPlan { runs: vec![true; n_layers].into() }
    }

    /// Layer skip: layers `0..exit`, then the final norm and the head.
    ///
    /// # Errors
    /// `exit` of 0 is [`PlanError::Empty`]; `exit` beyond the model is [`PlanError::OutOfRange`].
    pub fn exit(n_layers: usize, exit: usize) -> Result<Self, PlanError> {
        if exit > n_layers {
            return Err(PlanError::OutOfRange { from: 0, to: exit, n_layers });
        }
        if exit == 0 {
            return Err(PlanError::Empty);
        }
        Ok(LayerPlan { runs: (0..n_layers).map(|l| l < exit).collect() })
    }

    /// No layer at all: rows of an exit head that reads the embedding.
    pub fn none(n_layers: usize) -> Self {
        LayerPlan { runs: vec![false; n_layers].into() }
    }

    /// Layer skip in the middle: all layers but `from..to`.
    ///
    /// # Errors
    /// [`PlanError::OutOfRange`] unless `from <= to <= n_layers`; [`PlanError::Empty`] if nothing
    /// is left.
    pub fn skip_middle(n_layers: usize, from: usize, to: usize) -> Result<Self, PlanError> {
        if from > to || to > n_layers {
            return Err(PlanError::OutOfRange { from, to, n_layers });
        }
        if to - from == n_layers {
            return Err(PlanError::Empty);
        }
        Ok(LayerPlan { runs: (0..n_layers).map(|l| l < from || l >= to).collect() })
    }

    /// Layers of the model.
    pub fn n_layers(&self) -> usize {
        self.runs.len()
    }

    /// Whether the plan runs `layer`.
    pub fn runs(&self, layer: usize) -> bool {
        self.runs[layer]
    }

    /// Number of layers the plan runs.
    pub fn cost_layers(&self) -> usize {
        self.runs.iter().filter(|r| **r).count()
    }

    /// Whether the plan is the model itself.
    pub fn is_full(&self) -> bool {
        self.runs.iter().all(|r| *r)
    }

    /// Number of leading layers before the first skipped one. The K and V that a row of this plan
    /// writes in these layers, and its hidden state after them, are bit for bit the model's own.
    pub fn exact_prefix(&self) -> usize {
        self.runs.iter().take_while(|r| **r).count()
    }
}

impl fmt::Debug for LayerPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerPlan({self})")
    }
}

/// Ranges of layers, for example `0..12,17..30`; `none` without any.
impl fmt::Display for LayerPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cost_layers() == 0 {
            return f.write_str("none");
        }
        let mut first = true;
        let mut layer = 0;
        while layer < self.runs.len() {
            if !self.runs[layer] {
                layer += 1;
                continue;
            }
            let from = layer;
            while layer < self.runs.len() && self.runs[layer] {
                layer += 1;
            }
            write!(f, "{}{from}..{layer}", if first { "" } else { "," })?;
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_prefix_ends_before_the_first_skipped_layer() {
        assert_eq!(LayerPlan::full(6).exact_prefix(), 6);
        assert_eq!(LayerPlan::exit(6, 2).expect("valid").exact_prefix(), 2);
        let middle = LayerPlan::skip_middle(6, 2, 4).expect("valid");
        assert_eq!((middle.exact_prefix(), middle.cost_layers()), (2, 4));
        assert_eq!(middle.to_string(), "0..2,4..6");
        assert_eq!(LayerPlan::skip_middle(6, 0, 4).expect("valid").exact_prefix(), 0);
    }

    #[test]
    fn plans_that_do_not_fit_are_refused() {
        assert_eq!(LayerPlan::exit(6, 0), Err(PlanError::Empty));
        assert_eq!(LayerPlan::exit(6, 7), Err(PlanError::OutOfRange { from: 0, to: 7, n_layers: 6 }));
        assert_eq!(LayerPlan::skip_middle(6, 4, 2), Err(PlanError::OutOfRange { from: 4, to: 2, n_layers: 6 }));
        assert_eq!(LayerPlan::skip_middle(6, 0, 6), Err(PlanError::Empty));
    }
}
