//! The measurements of a benchmark, in their order.

use selfspec_engine::{Engine, Prompt, Request};
use selfspec_model::{LayerPlan, Readout};
use selfspec_speculate::{DraftLen, DraftPath, DrafterChoice, SpeculationParams};

use super::report::{BenchReport, DraftStep, FEW_ROWS};
use super::speculation::{self, BenchContender, PromptRuns};
use crate::error::LabError;
use crate::exit_layer::exit_plan;
use crate::measure::{MeasureOptions, Measurements, measure};
use crate::progress::{Stage, StageProgress};
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::{median, tokens_per_second};

/// Prompt tokens before a measurement of plain decoding.
const PLAIN_PROMPT: usize = 256;
/// Tokens that a measurement of plain decoding generates.
const PLAIN_TOKENS: usize = 64;
/// Rows of the widest measured pass.
const ROWS: usize = 16;
/// Prompt rows of the prefill measurement.
const PREFILL: usize = 512;

/// The measurements of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Positions before the measured passes; at least one context. The first is measured in full,
    /// the others with a few row counts. Shape: (context).
    pub contexts: Vec<usize>,
    /// Exit layers whose draft cost is measured; empty: four over the range where they can pay.
    /// Shape: (exit).
    pub exits: Vec<usize>,
    /// Repetitions; medians count.
    pub repetitions: usize,
    /// Whether passes are timed by part of the forward pass as well.
    pub profile: bool,
    /// Whether speculation is measured on the prompts.
    pub speculation: bool,
    /// Tokens drafted a round by layer skip.
    pub draft_len: DraftLen,
    /// How the prompts are given to the model.
    pub style: PromptStyle,
    /// Most tokens to generate for each prompt.
    pub max_tokens: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions {
            contexts: vec![256],
            exits: Vec::new(),
            repetitions: 3,
            profile: false,
            speculation: true,
            draft_len: DraftLen::Fixed(4),
            style: PromptStyle::Chat,
            max_tokens: 96,
        }
    }
}

/// Measures an engine that has nothing else to do.
///
/// # Errors
/// No context is named, the model's context is too short, an exit layer does not fit the model, or
/// the engine fails.
pub fn bench(
    engine: &Engine,
    prompts: &[PromptCase],
    options: &BenchOptions,
    progress: &dyn StageProgress,
) -> Result<BenchReport, LabError> {
    check_context(engine, &options.contexts)?;
    let exits = exits(&options.exits, engine.n_layers())?;
    let drafts = draft_steps(engine, &exits);
    let measured = measure_contexts(engine, options, &drafts, progress)?;
    let plain_tok_s = plain_speed(engine, options.repetitions, progress)?;
    let speculation = match options.speculation {
        true => {
            let contenders = contenders(options.draft_len, &exits, engine.n_layers(), engine.exit_head().is_some());
            let BenchOptions { style, max_tokens, repetitions, .. } = *options;
            let runs = PromptRuns { style, max_tokens, repetitions };
            speculation::run(engine, prompts, &contenders, runs, progress)?
        }
        false => Vec::new(),
    };
    Ok(BenchReport::new(engine, &measured, plain_tok_s, &drafts, speculation))
}

/// Whether the model has room for the longest context, and for a measurement of plain decoding.
fn check_context(engine: &Engine, contexts: &[usize]) -> Result<(), LabError> {
    let Some(longest) = contexts.iter().copied().max() else {
        return Err(LabError::Option { name: "contexts", why: "names no context".to_owned() });
    };
    let needed = longest.saturating_add(ROWS).max(PLAIN_PROMPT + PLAIN_TOKENS).saturating_add(1);
    let has = engine.context();
    if has < needed {
        let longest = (has > PLAIN_PROMPT + PLAIN_TOKENS).then(|| has - ROWS - 1);
        return Err(LabError::ShortContext { needed, has, longest });
    }
    Ok(())
}

/// The draft steps that are timed: at each exit with the model's own head, and the exit head if
/// there is one.
fn draft_steps(engine: &Engine, exits: &[ExitPlan]) -> Vec<DraftStep> {
    let own = exits.iter().map(|(exit, plan)| DraftStep {
        name: exit.to_string(),
        path: DraftPath { plan: plan.clone(), readout: Readout::Head },
    });
    let head = engine.exit_head().map(|head| DraftStep {
        name: "exit-head".to_owned(),
        path: DraftPath { plan: head.plan.clone(), readout: Readout::ExitHead },
    });
    own.chain(head).collect()
}

/// An exit layer with its plan.
type ExitPlan = (usize, LayerPlan);

/// The exits asked for; without any, four over the range where they can pay.
fn exits(asked: &[usize], n_layers: usize) -> Result<Vec<ExitPlan>, LabError> {
    let mut layers = asked.to_vec();
    if layers.is_empty() {
        layers = [0.3, 0.5, 0.65, 0.8].iter().map(|f| (n_layers as f64 * f).round() as usize).collect();
        layers.retain(|l| (1..n_layers).contains(l));
    }
    layers.sort_unstable();
    layers.dedup();
    layers.into_iter().map(|exit| Ok((exit, exit_plan(n_layers, exit)?))).collect()
}

/// Measures at each context: everything at the first, the passes of a few rows at the others.
fn measure_contexts(
    engine: &Engine,
    options: &BenchOptions,
    drafts: &[DraftStep],
    progress: &dyn StageProgress,
) -> Result<Vec<Measurements>, LabError> {
    let mut contexts: Vec<usize> = Vec::new();
    for context in &options.contexts {
        if !contexts.contains(context) {
            contexts.push(*context);
        }
    }
    let stage = Stage::begin(progress, "measuring passes", contexts.len());
    let mut measured = Vec::new();
    for (i, context) in contexts.iter().enumerate() {
        let asked = MeasureOptions {
            context: *context,
            rows: if i == 0 { (1..=ROWS).collect() } else { FEW_ROWS.to_vec() },
            paths: drafts.iter().map(|draft| draft.path.clone()).collect(),
            repetitions: options.repetitions.saturating_mul(5),
            prefill: if i == 0 { PREFILL.min(engine.context()) } else { 0 },
            profile: options.profile,
            ..MeasureOptions::default()
        };
        measured.push(measure(engine, &asked)?);
        stage.step();
    }
    Ok(measured)
}

/// Tokens a second of plain decoding through the whole engine, after a prompt of [`PLAIN_PROMPT`]
/// tokens: the median of the repetitions.
fn plain_speed(engine: &Engine, repetitions: usize, progress: &dyn StageProgress) -> Result<f64, LabError> {
    let stage = Stage::begin(progress, "measuring plain decoding", repetitions);
    let vocab = engine.info().vocab.max(1);
    let prompt: Vec<u32> = (0..PLAIN_PROMPT).map(|i| (i.wrapping_mul(7919) % vocab) as u32).collect();
    let mut speeds = Vec::new();
    for _ in 0..repetitions {
        let mut request = Request::new(Prompt::Tokens(prompt.clone()));
        request.max_tokens = Some(PLAIN_TOKENS);
        request.ignore_eos = true;
        request.speculation = SpeculationParams::off();
        speeds.push(tokens_per_second(&engine.submit(request)?.wait()?));
        stage.step();
    }
    Ok(median(&mut speeds))
}

/// The drafters that are compared: layer skip at the first exit in the deeper half, the exit head
/// if there is one, prompt lookup, auto.
fn contenders(draft_len: DraftLen, exits: &[ExitPlan], n_layers: usize, exit_head: bool) -> Vec<BenchContender> {
    let always = |drafter| SpeculationParams { drafter, always: true, ..SpeculationParams::default() };
    let mut contenders = Vec::new();
    if let Some((exit, plan)) = exits.iter().find(|(exit, _)| 2 * exit > n_layers).or(exits.last()) {
        let params = SpeculationParams { draft_len, ..always(DrafterChoice::LayerSkip(plan.clone())) };
        contenders.push(BenchContender { name: "layer-skip", exit_layer: Some(*exit), params });
    }
    if exit_head {
        let params = always(DrafterChoice::ExitHead);
        contenders.push(BenchContender { name: "exit-head", exit_layer: None, params });
    }
    let lookup = always(DrafterChoice::PromptLookup);
    contenders.push(BenchContender { name: "prompt-lookup", exit_layer: None, params: lookup });
    contenders.push(BenchContender { name: "auto", exit_layer: None, params: SpeculationParams::default() });
    contenders
}
