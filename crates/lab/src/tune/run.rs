//! The steps of a tuning.

use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions, LoadedModel, TunedDrafter, Tuning};
use selfspec_model::TokenId;

use super::candidate::{self, DrafterCandidate};
use super::costs::{self, CandidateCosts};
use super::draft_vocab;
use super::options::TuneOptions;
use super::report::{CandidateSpeed, TuneReport, WORTH};
use super::sweep::{CandidateAcceptance, MeasuredSpeed, PromptSweep};
use crate::error::LabError;
use crate::progress::{LabNote, StageProgress};
use crate::prompts::PromptCase;

/// Requests of a step while acceptance is measured: it does not depend on other requests.
const TOGETHER: usize = 8;
/// Drafters that run against plain decoding.
const FINALISTS: usize = 3;

/// Tunes a model, which is loaded without an earlier tuning.
///
/// # Errors
/// There are no prompts, no context fits the model, an exit layer does not fit it, or the engine
/// fails.
pub fn tune(
    loaded: &Arc<LoadedModel>,
    prompts: &[PromptCase],
    options: &TuneOptions,
    progress: &dyn StageProgress,
) -> Result<TuneReport, LabError> {
    if prompts.is_empty() {
        return Err(LabError::NoPrompts);
    }
    let contexts = contexts(&options.contexts, loaded.info().context)?;
    let sweep = PromptSweep { prompts, options, progress };
    let answers = sweep.answers(&engine(loaded, options, TOGETHER)?)?;
    let (ids, coverage) = draft_vocab::count(&answers, loaded.info().vocab, options.draft_vocab);
    let loaded = if ids.is_empty() { loaded.clone() } else { loaded.with_draft_vocab(&ids)? };
    let together = engine(&loaded, options, TOGETHER)?;
    let candidates = candidate::all(&together, &options.exits)?;
    let acceptance = sweep.acceptance(&together, &candidates)?;
    drop(together);

    let alone = engine(&loaded, options, 1)?;
    let costs = costs::measure(&alone, &candidates, &contexts, progress)?;
    let order = costs::ranking(&candidates, &acceptance, &costs[0]);
    let measured = sweep.speeds(&alone, &candidates, &order[..FINALISTS.min(order.len())])?;
    let mut finalists: Vec<CandidateSpeed> =
        measured.into_iter().map(|(i, measured)| speed(i, measured, &candidates, &acceptance, &costs[0])).collect();
    finalists.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    if let Some(first) = finalists.first().filter(|first| first.promised < 1.0 && first.speedup >= WORTH) {
        let name = candidates[first.candidate].name.clone();
        progress.note(&LabNote::UnexpectedSpeedup { name, promised: first.promised, measured: first.speedup });
    }
    let coverage = (!ids.is_empty()).then_some((ids.len(), coverage));
    let tuning = tuning(&alone, &loaded, options, (&candidates, &acceptance, &costs[0]), finalists.first(), ids);
    Ok(TuneReport {
        candidates,
        acceptance,
        costs,
        finalists,
        coverage,
        prompts: prompts.len(),
        temperature: options.temperature,
        tuning,
    })
}

fn engine(loaded: &Arc<LoadedModel>, options: &TuneOptions, max_batch: usize) -> Result<Engine, LabError> {
    Ok(Engine::open_with(loaded, &EngineOptions { max_batch, ..options.engine.clone() })?)
}

/// The contexts asked for that the model has room for.
fn contexts(asked: &[usize], most: usize) -> Result<Vec<usize>, LabError> {
    let mut contexts: Vec<usize> = Vec::new();
    for context in asked {
        if context.saturating_add(costs::ROWS) < most && !contexts.contains(context) {
            contexts.push(*context);
        }
    }
    if contexts.is_empty() {
        let why = format!("the model takes {most} positions, which is too short for any of them");
        return Err(LabError::Option { name: "contexts", why });
    }
    Ok(contexts)
}

/// A finalist's speed. Machines are noisy: the measurement counts as much as the promise, which
/// stands on medians of far more steps.
fn speed(
    candidate: usize,
    measured: MeasuredSpeed,
    candidates: &[DrafterCandidate],
    acceptance: &[CandidateAcceptance],
    costs: &CandidateCosts,
) -> CandidateSpeed {
    let MeasuredSpeed { speedup, tok_s } = measured;
    let promised = costs.best(candidate, &acceptance[candidate]).1;
    let worth = match candidates[candidate].path {
        Some(_) => (speedup * promised).sqrt(),
        None => speedup, // only a run tells how often there is a match
    };
    CandidateSpeed { candidate, speedup, tok_s, promised, worth }
}

/// The conclusion: the best finalist if it pays, else plain decoding.
fn tuning(
    engine: &Engine,
    loaded: &LoadedModel,
    options: &TuneOptions,
    (candidates, acceptance, costs): (&[DrafterCandidate], &[CandidateAcceptance], &CandidateCosts),
    first: Option<&CandidateSpeed>,
    ids: Vec<TokenId>,
) -> Tuning {
    let best = first.filter(|first| first.pays());
    let drafter = best.map_or(TunedDrafter::Off, |best| candidates[best.candidate].tuned(engine.n_layers()));
    let layer_skip = matches!(drafter, TunedDrafter::LayerSkip { .. });
    Tuning {
        version: Tuning::VERSION,
        model: loaded.info().name.clone().unwrap_or_else(|| options.model.clone()),
        fingerprint: loaded.fingerprint().to_owned(),
        isa: engine.isa().map(|isa| isa.to_string()).unwrap_or_default(),
        threads: engine.threads(),
        prompts: options.prompts.clone(),
        speedup: best.map_or(1.0, |best| best.speedup),
        draft_vocab: if layer_skip { ids } else { Vec::new() },
        exit_head: options.exit_head.clone(),
        acceptance: best.map(|best| acceptance[best.candidate].places_by_category()).unwrap_or_default(),
        c: best.filter(|best| candidates[best.candidate].path.is_some()).map(|best| costs.c[best.candidate]),
        drafter,
    }
}
