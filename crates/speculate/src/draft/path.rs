//! The path of a draft row through the model.

use std::fmt;

use selfspec_model::{LayerPlan, PlanError, Readout};

/// The layers that a draft's rows run, and the head that reads their logits. Costs and acceptance
/// of drafting with the model are recorded by path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DraftPath {
    /// The layers.
    pub plan: LayerPlan,
    /// The head that reads the logits.
    pub readout: Readout,
}

impl DraftPath {
    /// The first `layers` of `n_layers` layers, and the model's own head.
    ///
    /// # Errors
    /// [`PlanError`] if there are no such layers.
    pub fn exit(n_layers: usize, layers: usize) -> Result<Self, PlanError> {
        Ok(DraftPath { plan: LayerPlan::exit(n_layers, layers)?, readout: Readout::Head })
    }

    /// Whether the exit head reads the logits. It needs its own K and V beside the model's.
    pub fn uses_exit_head(&self) -> bool {
        self.readout == Readout::ExitHead
    }
}

/// `layers 0..12`, `layers 0..12 and the draft vocabulary`, `layers 0..4 and the exit head`.
impl fmt::Display for DraftPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.plan.cost_layers() > 0;
        if layers {
            write!(f, "layers {}", self.plan)?;
        }
        match self.readout {
            Readout::Nothing | Readout::Head => Ok(()),
            Readout::DraftVocab => f.write_str(" and the draft vocabulary"),
            Readout::ExitHead if layers => f.write_str(" and the exit head"),
            Readout::ExitHead => f.write_str("the exit head"),
        }
    }
}
