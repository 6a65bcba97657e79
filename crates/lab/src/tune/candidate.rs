//! The drafters that a tuning tries.

use selfspec_engine::{Engine, TunedDrafter};
use selfspec_model::{LayerPlan, Readout};
use selfspec_speculate::{DraftPath, DrafterChoice, SpeculationParams};

use crate::error::LabError;
use crate::exit_layer::exit_plan;
use crate::fixed_drafts::fixed_drafts;

/// A drafter that is tried.
#[derive(Debug, Clone)]
pub struct DrafterCandidate {
    /// Its name in tables.
    pub name: String,
    /// How its rows run; `None`: it copies.
    pub path: Option<DraftPath>,
    /// The exit layer, of layer skip that leaves out the last layers.
    pub exit: Option<usize>,
    choice: DrafterChoice,
}

/// Prompt lookup, exits over the depth, plans that leave out layers in the middle, and the exit
/// head if there is one.
pub(super) fn all(engine: &Engine, exits: &[usize]) -> Result<Vec<DrafterCandidate>, LabError> {
    let n = engine.n_layers();
    let readout = if engine.has_draft_vocab() { Readout::DraftVocab } else { Readout::Head };
    let skip = |name: String, plan: LayerPlan, exit| DrafterCandidate {
        name,
        path: Some(DraftPath { plan: plan.clone(), readout }),
        exit,
        choice: DrafterChoice::LayerSkip(plan),
    };
    let mut candidates = vec![DrafterCandidate {
        name: "prompt lookup".to_owned(),
        path: None,
        exit: None,
        choice: DrafterChoice::PromptLookup,
    }];
    if let Some(head) = engine.exit_head() {
        candidates.push(DrafterCandidate {
            name: "exit head".to_owned(),
            path: Some(DraftPath { plan: head.plan.clone(), readout: Readout::ExitHead }),
            exit: None,
            choice: DrafterChoice::ExitHead,
        });
    }
    let mut exits = exits.to_vec();
    if exits.is_empty() {
        exits = (1..=10).map(|i| (n as f64 * (0.05 + 0.09 * f64::from(i))).round() as usize).collect();
        exits.push(n.saturating_sub(1));
        exits.retain(|exit| (1..n).contains(exit));
    }
    exits.sort_unstable();
    exits.dedup();
    for exit in exits {
        candidates.push(skip(format!("exit {exit}"), exit_plan(n, exit)?, Some(exit)));
    }
    // The middle layers change the hidden state least.
    for (from, to) in [(0.4, 0.57), (0.33, 0.67), (0.55, 0.75)].map(|(a, b)| (at(n, a), at(n, b))) {
        if from > 0 && from < to && to < n {
            candidates.push(skip(format!("without {from}..{to}"), LayerPlan::skip_middle(n, from, to)?, None));
        }
    }
    Ok(candidates)
}

fn at(n: usize, share: f64) -> usize {
    (n as f64 * share).round() as usize
}

impl DrafterCandidate {
    /// Drafts of a fixed length, whether they pay or not.
    pub(super) fn always(&self, draft_len: usize) -> SpeculationParams {
        fixed_drafts(&self.choice, draft_len)
    }

    /// The parameters of a run that was tuned to this.
    pub(super) fn in_use(&self) -> SpeculationParams {
        match &self.choice {
            DrafterChoice::LayerSkip(plan) => {
                SpeculationParams { auto_plan: Some(plan.clone()), ..SpeculationParams::default() }
            }
            DrafterChoice::ExitHead => SpeculationParams::default(),
            other => SpeculationParams { drafter: other.clone(), ..SpeculationParams::default() },
        }
    }

    /// The same in a tuning's file, for a model of `n` layers.
    pub(super) fn tuned(&self, n: usize) -> TunedDrafter {
        match &self.choice {
            DrafterChoice::LayerSkip(plan) => {
                let from = plan.exact_prefix();
                TunedDrafter::LayerSkip { from, to: from + (n - plan.cost_layers()) }
            }
            DrafterChoice::ExitHead => TunedDrafter::ExitHead,
            DrafterChoice::PromptLookup => TunedDrafter::PromptLookup,
            DrafterChoice::Auto | DrafterChoice::Off => TunedDrafter::Off,
        }
    }
}
