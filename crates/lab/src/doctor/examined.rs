//! The drafter that is examined: the one that a run of this model would take.

use selfspec_engine::{Engine, TunedDrafter, Tuning};
use selfspec_model::{LayerPlan, Readout};
use selfspec_speculate::{DraftPath, DrafterChoice, SpeculationParams};

use crate::error::LabError;
use crate::fixed_drafts::fixed_drafts;

/// The drafter that a run would take.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExaminedDrafter {
    pub(super) choice: DrafterChoice,
    /// How its rows run; `None`: it copies.
    pub(super) path: Option<DraftPath>,
    /// The default parameters of a run.
    pub(super) in_use: SpeculationParams,
}

impl ExaminedDrafter {
    /// The tuning's choice; else the exit head; else layer skip at half of the layers; else prompt
    /// lookup. If the tuning says not to speculate, the choice without it is examined.
    ///
    /// # Errors
    /// The tuning's layers do not fit the model.
    pub(super) fn of(engine: &Engine, tuning: Option<&Tuning>) -> Result<ExaminedDrafter, LabError> {
        let n = engine.n_layers();
        let in_use = tuning.map(|t| t.speculation(n)).transpose()?.unwrap_or_default();
        let readout = if engine.has_draft_vocab() { Readout::DraftVocab } else { Readout::Head };
        let skip = |plan: LayerPlan| (DrafterChoice::LayerSkip(plan.clone()), Some(DraftPath { plan, readout }));
        let head = engine.exit_head().map(|head| {
            (DrafterChoice::ExitHead, Some(DraftPath { plan: head.plan.clone(), readout: Readout::ExitHead }))
        });
        let half = half(n).map(skip);
        let lookup = (DrafterChoice::PromptLookup, None);
        let (choice, path) = match (tuning.map(|t| &t.drafter), &in_use.auto_plan) {
            (Some(TunedDrafter::PromptLookup), _) => lookup,
            (_, Some(plan)) => skip(plan.clone()),
            _ => head.or(half).unwrap_or(lookup),
        };
        Ok(ExaminedDrafter { choice, path, in_use })
    }

    /// Drafts of a fixed length, whether they pay or not.
    pub(super) fn always(&self, draft_len: usize) -> SpeculationParams {
        fixed_drafts(&self.choice, draft_len)
    }

    /// In words.
    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "prompt lookup".to_owned(), ToString::to_string)
    }

    /// The layers whose exit is checked besides: those of the drafts, or half of all layers if an
    /// exit head drafts or nothing does.
    pub(super) fn exit(&self, n_layers: usize) -> Option<LayerPlan> {
        let own = self.path.as_ref().filter(|path| path.readout != Readout::ExitHead);
        own.map(|path| path.plan.clone()).or_else(|| half(n_layers))
    }
}

fn half(n: usize) -> Option<LayerPlan> {
    LayerPlan::exit(n, n.div_ceil(2)).ok().filter(|plan| !plan.is_full())
}
