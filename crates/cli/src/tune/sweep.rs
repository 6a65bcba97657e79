//! What runs on the prompts: plain answers, acceptance of every way to draft, and the speed of the best ones.

use std::collections::{BTreeMap, VecDeque};

use selfspec_engine::{
    Engine, Generation, PositionStats, Request, SamplingParams, SpecStats, SpeculationParams, Summary, TokenId,
};

use super::candidate::Candidate;
use crate::args::TuneArgs;
use crate::output::Ui;
use crate::progress::Steps;
use selfspec_lab::prompts::PromptCase;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::statistics::median;
use selfspec_lab::statistics::tokens_per_second;

/// Tokens drafted a round while acceptance is measured.
pub(crate) const DRAFT_LEN: usize = 4;
/// Judged drafts that make a share of accepted ones.
pub(crate) const ENOUGH: u64 = 20;
/// Prompts on which the best ways are run against plain decoding.
const PAIRED: usize = 24;
/// Requests under way at a time.
const UNDER_WAY: usize = 16;

/// How the drafts of a candidate fared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acceptance {
    pub(crate) stats: SpecStats,
    pub(crate) by_category: BTreeMap<String, SpecStats>,
}

impl Acceptance {
    /// Acceptance at a place of the round, given that the drafts before it were accepted; further back as at the last place that was measured.
    pub(crate) fn at(&self, place: usize) -> f64 {
        let places = places(&self.stats);
        places.get(place).or(places.last()).copied().unwrap_or(0.0)
    }

    /// Acceptance at each place by category of prompts.
    pub(crate) fn places_by_category(&self) -> BTreeMap<String, Vec<f64>> {
        self.by_category.iter().map(|(category, stats)| (category.clone(), places(stats))).collect()
    }
}

/// Acceptance at each place of the round, given that the drafts before it were accepted, as far as enough drafts were judged.
pub(crate) fn places(stats: &SpecStats) -> Vec<f64> {
    let measured = |p: &&PositionStats| p.judged >= ENOUGH;
    stats.by_position.iter().take_while(measured).map(|p| p.accepted as f64 / p.judged as f64).collect()
}

/// What came of running a candidate against plain decoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Median of the ratios to plain decoding of the same prompt.
    pub(crate) speedup: f64,
    /// Median tokens a second.
    pub(crate) tok_s: f64,
}

fn request(case: &PromptCase, style: PromptStyle, args: &TuneArgs, speculation: SpeculationParams) -> Request {
    let mut request = Request::new(case.prompt(style));
    request.max_tokens = Some(args.max_tokens);
    request.sampling = SamplingParams { temperature: args.temp, seed: Some(1), ..SamplingParams::default() };
    request.speculation = speculation;
    request
}

/// Runs all prompts, some at a time.
fn run_all(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    args: &TuneArgs,
    speculation: &SpeculationParams,
    steps: &Steps,
) -> anyhow::Result<Vec<Summary>> {
    let mut under_way: VecDeque<Generation> = VecDeque::new();
    let mut summaries = Vec::new();
    for case in prompts {
        if under_way.len() == UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            summaries.push(first.wait()?);
            steps.step();
        }
        under_way.push_back(engine.submit(request(case, style, args, speculation.clone()))?);
    }
    for generation in under_way {
        summaries.push(generation.wait()?);
        steps.step();
    }
    Ok(summaries)
}

/// The model's plain answers.
pub(crate) fn answers(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    args: &TuneArgs,
    ui: &Ui,
) -> anyhow::Result<Vec<Vec<TokenId>>> {
    let steps = Steps::new(ui, "answering prompts", prompts.len() as u64);
    let summaries = run_all(engine, prompts, style, args, &SpeculationParams::off(), &steps)?;
    Ok(summaries.into_iter().map(|summary| summary.token_ids).collect())
}

/// Acceptance of every candidate.
pub(crate) fn acceptance(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    candidates: &[Candidate],
    args: &TuneArgs,
    ui: &Ui,
) -> anyhow::Result<Vec<Acceptance>> {
    let steps = Steps::new(ui, "measuring acceptance", (prompts.len() * candidates.len()) as u64);
    let mut all = Vec::new();
    for candidate in candidates {
        let mut acceptance = Acceptance::default();
        let summaries = run_all(engine, prompts, style, args, &candidate.always(DRAFT_LEN), &steps)?;
        for (case, summary) in prompts.iter().zip(summaries) {
            acceptance.stats.merge(&summary.stats);
            acceptance.by_category.entry(case.category.clone()).or_default().merge(&summary.stats);
        }
        ui.detail(&format!("{}: first draft accepted {:.2}", candidate.name, acceptance.at(0)));
        all.push(acceptance);
    }
    Ok(all)
}

/// Runs the finalists against plain decoding, prompt by prompt.
pub(crate) fn measure(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    candidates: &[Candidate],
    finalists: &[usize],
    args: &TuneArgs,
    ui: &Ui,
) -> anyhow::Result<Vec<(usize, Measured)>> {
    let stride = prompts.len().div_ceil(PAIRED).max(1);
    let chosen: Vec<&PromptCase> = prompts.iter().step_by(stride).collect();
    let steps = Steps::new(ui, "measuring speed", (chosen.len() * (finalists.len() + 1)) as u64);
    let mut samples: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); finalists.len()];
    for case in chosen {
        let speed = |speculation: SpeculationParams| -> anyhow::Result<f64> {
            let summary = engine.submit(request(case, style, args, speculation))?.wait()?;
            steps.step();
            Ok(tokens_per_second(&summary))
        };
        let plain = speed(SpeculationParams::off())?;
        for (finalist, (ratios, speeds)) in finalists.iter().zip(&mut samples) {
            let drafted = speed(candidates[*finalist].in_use())?;
            if plain > 0.0 && drafted > 0.0 {
                ratios.push(drafted / plain);
                speeds.push(drafted);
            }
        }
    }
    let results = finalists.iter().zip(samples);
    Ok(results
        .map(|(i, (mut ratios, mut speeds))| {
            (*i, Measured { speedup: median(&mut ratios), tok_s: median(&mut speeds) })
        })
        .collect())
}
