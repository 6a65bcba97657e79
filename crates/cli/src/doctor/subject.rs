//! What is examined: the way to draft that a run of this model would take.

use selfspec_engine::{
    DraftLen, DraftPath, DrafterChoice, Engine, LayerPlan, Readout, SpeculationParams, TunedDrafter, Tuning,
};

/// The way to draft that a run would take.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subject {
    pub(crate) choice: DrafterChoice,
    /// How its rows run; `None`: it copies.
    pub(crate) path: Option<DraftPath>,
    /// What a run does that is told nothing else.
    pub(crate) in_use: SpeculationParams,
}

impl Subject {
    /// As the tuning says; else the exit head; else layer skip at half of the layers; else prompt lookup. A tuning that says not to speculate leaves what
    /// there would be without it to be examined.
    ///
    /// # Errors
    /// The tuning's layers do not fit the model.
    pub(crate) fn of(engine: &Engine, tuning: Option<&Tuning>) -> anyhow::Result<Subject> {
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
        Ok(Subject { choice, path, in_use })
    }

    /// Drafts of a fixed length, whatever they cost.
    pub(crate) fn always(&self, draft_len: usize) -> SpeculationParams {
        SpeculationParams {
            drafter: self.choice.clone(),
            draft_len: DraftLen::Fixed(draft_len),
            always: true,
            ..SpeculationParams::default()
        }
    }

    /// In words.
    pub(crate) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "prompt lookup".to_owned(), ToString::to_string)
    }

    /// The layers whose exit is looked at besides: those of the drafts, or half of them all where an exit head drafts or nothing does.
    pub(crate) fn exit(&self, n_layers: usize) -> Option<LayerPlan> {
        let own = self.path.as_ref().filter(|path| path.readout != Readout::ExitHead);
        own.map(|path| path.plan.clone()).or_else(|| half(n_layers))
    }
}

fn half(n: usize) -> Option<LayerPlan> {
    LayerPlan::exit(n, n.div_ceil(2)).ok().filter(|plan| !plan.is_full())
}
