//! A way to draft that is tried.

use selfspec_engine::{
    DraftLen, DraftPath, DrafterChoice, Engine, LayerPlan, Readout, SpeculationParams, TunedDrafter,
};

use selfspec_lab::exit_plan;

/// A way to draft that is tried.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    /// How its rows run; `None`: it copies.
    pub(crate) path: Option<DraftPath>,
    /// The exit layer, of layer skip that leaves out the last layers.
    pub(crate) exit: Option<usize>,
    choice: DrafterChoice,
}

/// Prompt lookup, exits over the depth, plans that leave out layers in the middle, and the exit head if there is one.
pub(crate) fn all(engine: &Engine, exits: &[usize]) -> anyhow::Result<Vec<Candidate>> {
    let n = engine.n_layers();
    let readout = if engine.has_draft_vocab() { Readout::DraftVocab } else { Readout::Head };
    let skip = |name: String, plan: LayerPlan, exit| Candidate {
        name,
        path: Some(DraftPath { plan: plan.clone(), readout }),
        exit,
        choice: DrafterChoice::LayerSkip(plan),
    };
    let mut candidates = vec![Candidate {
        name: "prompt lookup".to_owned(),
        path: None,
        exit: None,
        choice: DrafterChoice::PromptLookup,
    }];
    if let Some(head) = engine.exit_head() {
        candidates.push(Candidate {
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
        candidates.push(skip(
            format!("exit {exit}"),
            exit_plan(n, exit).map_err(|e| anyhow::anyhow!("--exits {exit}: {e}"))?,
            Some(exit),
        ));
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

impl Candidate {
    /// Drafts of a fixed length, whatever they cost.
    pub(crate) fn always(&self, draft_len: usize) -> SpeculationParams {
        SpeculationParams {
            drafter: self.choice.clone(),
            draft_len: DraftLen::Fixed(draft_len),
            always: true,
            ..SpeculationParams::default()
        }
    }

    /// What a run would do that was tuned to this.
    pub(crate) fn in_use(&self) -> SpeculationParams {
        match &self.choice {
            DrafterChoice::LayerSkip(plan) => {
                SpeculationParams { auto_plan: Some(plan.clone()), ..SpeculationParams::default() }
            }
            DrafterChoice::ExitHead => SpeculationParams::default(),
            other => SpeculationParams { drafter: other.clone(), ..SpeculationParams::default() },
        }
    }

    /// The same for the tuning's file, of a model of `n` layers.
    pub(crate) fn tuned(&self, n: usize) -> TunedDrafter {
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
