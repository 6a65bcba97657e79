//! Speculation on prompts, each drafter paired with plain decoding of the same prompt in the same
//! minute.

use std::collections::BTreeMap;

use selfspec_engine::{Engine, Request, RequestSummary};
use selfspec_speculate::SpeculationParams;

use crate::error::LabError;
use crate::progress::{Stage, StageProgress};
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::{median, tokens_per_second};

/// A drafter to measure.
#[derive(Debug, Clone)]
pub struct BenchContender {
    /// Its name: `layer-skip`, `exit-head`, `prompt-lookup` or `auto`.
    pub name: &'static str,
    /// The exit layer, of layer skip.
    pub exit_layer: Option<usize>,
    /// The parameters of its requests.
    pub params: SpeculationParams,
}

/// A drafter on the prompts of a category.
#[derive(Debug, Clone)]
pub struct ContenderResult {
    /// The drafter.
    pub contender: BenchContender,
    /// The prompts' category.
    pub category: String,
    /// Tokens a second after the first one: the median over prompts and repetitions.
    pub tok_s: f64,
    /// Median of the ratios to plain decoding of the same prompt and repetition.
    pub speedup: f64,
    /// Tokens drafted, summed over the prompts of one repetition.
    pub drafted: u64,
    /// Of these, tokens accepted.
    pub accepted: u64,
    /// Passes of the full model, summed likewise.
    pub rounds: u64,
}

#[derive(Default)]
struct ContenderSamples {
    tok_s: Vec<f64>,
    speedup: Vec<f64>,
    drafted: u64,
    accepted: u64,
    rounds: u64,
}

/// How the prompts run.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromptRuns {
    pub(super) style: PromptStyle,
    pub(super) max_tokens: usize,
    pub(super) repetitions: usize,
}

pub(super) fn run(
    engine: &Engine,
    prompts: &[PromptCase],
    contenders: &[BenchContender],
    runs: PromptRuns,
    progress: &dyn StageProgress,
) -> Result<Vec<ContenderResult>, LabError> {
    let steps = prompts.len() * (contenders.len() + 1) * runs.repetitions;
    let stage = Stage::begin(progress, "measuring speculation", steps);
    let mut samples: BTreeMap<(String, usize), ContenderSamples> = BTreeMap::new(); // (category, contender)
    for case in prompts {
        for repetition in 0..runs.repetitions {
            let run = |speculation: &SpeculationParams| -> Result<RequestSummary, LabError> {
                let mut request = Request::new(case.prompt(runs.style));
                request.max_tokens = Some(runs.max_tokens);
                request.speculation = speculation.clone();
                let summary = engine.submit(request)?.wait()?;
                stage.step();
                Ok(summary)
            };
            // Plain decoding and every drafter take turns, so that a slow moment falls on all of
            // them.
            let plain = tokens_per_second(&run(&SpeculationParams::off())?);
            for (i, contender) in contenders.iter().enumerate() {
                let summary = run(&contender.params)?;
                let speed = tokens_per_second(&summary);
                let sample = samples.entry((case.category.clone(), i)).or_default();
                // An answer of one token has no speed.
                if speed > 0.0 && plain > 0.0 {
                    sample.tok_s.push(speed);
                    sample.speedup.push(speed / plain);
                }
                if repetition == 0 {
                    sample.drafted += summary.stats.drafted;
                    sample.accepted += summary.stats.accepted;
                    sample.rounds += summary.stats.rounds;
                }
            }
        }
    }
    let results = samples.into_iter().map(|((category, i), mut s)| ContenderResult {
        contender: contenders[i].clone(),
        category,
        tok_s: median(&mut s.tok_s),
        speedup: median(&mut s.speedup),
        drafted: s.drafted,
        accepted: s.accepted,
        rounds: s.rounds,
    });
    Ok(results.collect())
}
