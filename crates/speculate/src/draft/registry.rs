//! From a request's choice to its drafters: the one place that makes them.
//!
//! A new drafter needs a file in this folder, a row in `kind.rs`, and its construction here.

use selfspec_model::{LayerPlan, Readout, TokenId};

use crate::draft::drafter::Drafter;
use crate::draft::kind::DrafterChoice;
use crate::draft::model_layers::ModelDrafter;
use crate::draft::params::SpeculationParams;
use crate::draft::path::DraftPath;
use crate::draft::prediction::PredictionDrafter;
use crate::draft::prompt_lookup::PromptLookup;
use crate::target::TargetModel;

/// The drafters that a request allows, in the order in which they are asked. A predicted output is
/// copied before all others, unless speculation is off. `prompt_len` is in tokens.
pub(crate) fn drafters(
    params: &SpeculationParams,
    target: &TargetModel,
    prediction: Vec<TokenId>,
    prompt_len: usize,
) -> Vec<Box<dyn Drafter>> {
    let mut drafters: Vec<Box<dyn Drafter>> = match &params.drafter {
        DrafterChoice::Off => return Vec::new(),
        DrafterChoice::PromptLookup => vec![prompt_lookup(params)],
        DrafterChoice::LayerSkip(plan) => vec![layer_skip(plan.clone(), params, target)],
        DrafterChoice::ExitHead => exit_head(params, target).into_iter().collect(),
        DrafterChoice::Auto => {
            let n = target.n_layers;
            let half = || LayerPlan::exit(n, n.div_ceil(2)).ok().filter(|plan| !plan.is_full());
            let own = match &params.auto_plan {
                Some(plan) => Some(layer_skip(plan.clone(), params, target)),
                None => exit_head(params, target).or_else(|| half().map(|plan| layer_skip(plan, params, target))),
            };
            std::iter::once(prompt_lookup(params)).chain(own).collect()
        }
    };
    if !drafters.is_empty() && !prediction.is_empty() {
        drafters.insert(0, Box::new(PredictionDrafter::new(prediction, prompt_len)));
    }
    drafters
}

fn prompt_lookup(params: &SpeculationParams) -> Box<dyn Drafter> {
    Box::new(PromptLookup::new(params.ngram_min, params.ngram_max))
}

fn layer_skip(plan: LayerPlan, params: &SpeculationParams, target: &TargetModel) -> Box<dyn Drafter> {
    let vocab = target.draft_vocab.clone().filter(|_| params.draft_vocab);
    let readout = if vocab.is_some() { Readout::DraftVocab } else { Readout::Head };
    Box::new(ModelDrafter::new(DraftPath { plan, readout }, vocab, params.min_confidence))
}

/// `None` if the model has no exit head.
fn exit_head(params: &SpeculationParams, target: &TargetModel) -> Option<Box<dyn Drafter>> {
    let head = target.exit_head.clone()?;
    let path = DraftPath { plan: head.plan, readout: Readout::ExitHead };
    let drafter = ModelDrafter::new(path, Some(head.vocab), params.min_confidence);
    Some(Box::new(drafter.with_expected_acceptance(head.acceptance)))
}
