//! `selfspec bench`: what passes cost on this machine, and what speculation makes of it; `bench serve`: what a server makes of load.

mod record;
pub(crate) mod report;
mod serve;
pub(crate) mod speculation;

use selfspec_engine::{DraftPath, DrafterChoice, Engine, LayerPlan, Prompt, Readout, Request, SpeculationParams};
use selfspec_lab::measure::{MeasureOptions, Measurements};

use crate::args::{BenchArgs, BenchCommand, BenchKind, Format};
use crate::model;
use crate::output::{self, Ui};
use crate::progress::Steps;
use crate::request::exit_plan;
use report::Report;
use selfspec_lab::prompts;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::statistics::{median, tokens_per_second};
use speculation::{Contender, Result as SpeculationResult};

/// Prompt tokens before a measurement of plain decoding.
const PLAIN_PROMPT: usize = 256;
/// Rows of the widest measured pass.
const ROWS: usize = 16;
/// Row counts that are measured at the contexts after the first.
const FEW_ROWS: [usize; 4] = [1, 2, 4, 8];
/// Prompt rows of the prefill measurement.
const PREFILL: usize = 512;
/// Tokens that a measurement of plain decoding generates.
const PLAIN_TOKENS: usize = 64;

pub(crate) fn run(command: &BenchCommand, ui: &Ui) -> anyhow::Result<()> {
    match &command.kind {
        Some(BenchKind::Serve(args)) => serve::run(args, ui),
        Some(BenchKind::Table(args)) => record::run(args, ui),
        None => run_all(&command.bench, ui),
    }
}

fn run_all(args: &BenchArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), args.limit)?;
    let prompts = if args.prompts.is_none() { prompts::one_of_each(prompts) } else { prompts };
    let engine = model::engine(&args.model.model, None, &args.compute, ui)?;
    let longest = args.contexts.iter().copied().max().unwrap_or(0);
    let needed = (longest.saturating_add(ROWS)).max(PLAIN_PROMPT + PLAIN_TOKENS).saturating_add(1);
    if engine.context() < needed {
        let has = engine.context();
        let hint = match has > PLAIN_PROMPT + PLAIN_TOKENS {
            true => format!(": --contexts can be up to {}", has - ROWS - 1),
            false => String::new(), // too short for any context
        };
        anyhow::bail!("bench needs a context of {needed} positions, this model has {has}{hint}");
    }
    let exits = exits(args, engine.n_layers())?;
    let drafts = draft_steps(&engine, &exits);
    let measured = measure(&engine, args, &drafts, ui)?;
    let plain_tok_s = plain_speed(&engine, args.repetitions, ui)?;
    let style = PromptStyle::of(args.raw, engine.info());
    let speculation = match args.no_speculation {
        true => Vec::new(),
        false => {
            let contenders = contenders(args, &exits, engine.n_layers(), engine.exit_head().is_some());
            speculation::run(&engine, &prompts, style, &contenders, args, ui)?
        }
    };
    let report = Report::new(&engine, &measured, plain_tok_s, &drafts, speculation);
    match args.output {
        Format::Md => Ok(output::print(&report.markdown(&args.model.model, args.draft_len))?),
        Format::Json => output::print_json(&report.json()),
        Format::Csv => Ok(output::print(&report.csv())?),
    }
}

/// A way to draft whose step is timed.
#[derive(Debug)]
pub(crate) struct DraftStep {
    name: String, // the exit layer, or `exit-head`
    path: DraftPath,
}

/// The draft steps that are timed: at each exit with the model's own head, and the exit head where there is one.
fn draft_steps(engine: &Engine, exits: &[Exit]) -> Vec<DraftStep> {
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
type Exit = (usize, LayerPlan);

/// The exits asked for; without any, four over the range where they can pay.
fn exits(args: &BenchArgs, n_layers: usize) -> anyhow::Result<Vec<Exit>> {
    let mut layers = args.exits.clone();
    if layers.is_empty() {
        layers = [0.3, 0.5, 0.65, 0.8].iter().map(|f| (n_layers as f64 * f).round() as usize).collect();
        layers.retain(|l| (1..n_layers).contains(l));
    }
    layers.sort_unstable();
    layers.dedup();
    layers.into_iter().map(|exit| Ok((exit, exit_plan("--exits", n_layers, exit)?))).collect()
}

/// Measures at each context: everything at the first, the passes of a few rows at the others.
fn measure(engine: &Engine, args: &BenchArgs, drafts: &[DraftStep], ui: &Ui) -> anyhow::Result<Vec<Measurements>> {
    let mut contexts: Vec<usize> = Vec::new();
    for context in &args.contexts {
        if !contexts.contains(context) {
            contexts.push(*context);
        }
    }
    let steps = Steps::new(ui, "measuring passes", contexts.len() as u64);
    let mut measured = Vec::new();
    for (i, context) in contexts.iter().enumerate() {
        let options = MeasureOptions {
            context: *context,
            rows: if i == 0 { (1..=ROWS).collect() } else { FEW_ROWS.to_vec() },
            paths: drafts.iter().map(|draft| draft.path.clone()).collect(),
            repetitions: args.repetitions.saturating_mul(5),
            prefill: if i == 0 { PREFILL.min(engine.context()) } else { 0 },
            profile: args.profile,
            ..MeasureOptions::default()
        };
        measured.push(selfspec_lab::measure::measure(engine, &options)?);
        steps.step();
    }
    Ok(measured)
}

/// Tokens a second of plain decoding through the whole engine, after a prompt of [`PLAIN_PROMPT`] tokens: the median of the repetitions.
fn plain_speed(engine: &Engine, repetitions: usize, ui: &Ui) -> anyhow::Result<f64> {
    let steps = Steps::new(ui, "measuring plain decoding", repetitions as u64);
    let vocab = engine.info().vocab.max(1);
    let prompt: Vec<u32> = (0..PLAIN_PROMPT).map(|i| (i.wrapping_mul(7919) % vocab) as u32).collect();
    let mut speeds = Vec::new();
    for _ in 0..repetitions {
        let mut request = Request::new(Prompt::Tokens(prompt.clone()));
        request.max_tokens = Some(PLAIN_TOKENS);
        request.ignore_eos = true;
        request.speculation = SpeculationParams::off();
        speeds.push(tokens_per_second(&engine.submit(request)?.wait()?));
        steps.step();
    }
    Ok(median(&mut speeds))
}

/// The ways of drafting that are compared: layer skip at the first exit in the deeper half, the exit head if there is one,
/// prompt lookup, auto.
fn contenders(args: &BenchArgs, exits: &[Exit], n_layers: usize, exit_head: bool) -> Vec<Contender> {
    let always = |drafter| SpeculationParams { drafter, always: true, ..SpeculationParams::default() };
    let mut contenders = Vec::new();
    if let Some((exit, plan)) = exits.iter().find(|(exit, _)| 2 * exit > n_layers).or(exits.last()) {
        let params = SpeculationParams { draft_len: args.draft_len, ..always(DrafterChoice::LayerSkip(plan.clone())) };
        contenders.push(Contender { name: "layer-skip", exit_layer: Some(*exit), params });
    }
    if exit_head {
        let params = always(DrafterChoice::ExitHead);
        contenders.push(Contender { name: "exit-head", exit_layer: None, params });
    }
    let lookup = always(DrafterChoice::PromptLookup);
    contenders.push(Contender { name: "prompt-lookup", exit_layer: None, params: lookup });
    contenders.push(Contender { name: "auto", exit_layer: None, params: SpeculationParams::default() });
    contenders
}
