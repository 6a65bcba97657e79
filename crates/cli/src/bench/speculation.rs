//! Speculation on prompts, each way of drafting paired with plain decoding of the same prompt in the same minute.

use std::collections::BTreeMap;

use selfspec_engine::{Engine, Request, SpeculationParams, Summary};

use crate::args::BenchArgs;
use crate::output::Ui;
use crate::progress::Steps;
use selfspec_lab::prompts::PromptCase;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::statistics::{median, tokens_per_second};

/// A way of drafting to measure.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) exit_layer: Option<usize>,
    pub(crate) params: SpeculationParams,
}

/// What a way of drafting came to on the prompts of a category.
#[derive(Debug, Clone)]
pub(crate) struct Result {
    pub(crate) contender: Contender,
    pub(crate) category: String,
    /// Median over prompts and repetitions.
    pub(crate) tok_s: f64,
    /// Median of the ratios to plain decoding of the same prompt and repetition.
    pub(crate) speedup: f64,
    /// Sums over the prompts, of one repetition.
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
    pub(crate) rounds: u64,
}

#[derive(Default)]
struct Samples {
    tok_s: Vec<f64>,
    speedup: Vec<f64>,
    drafted: u64,
    accepted: u64,
    rounds: u64,
}

pub(crate) fn run(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    contenders: &[Contender],
    args: &BenchArgs,
    ui: &Ui,
) -> anyhow::Result<Vec<Result>> {
    let runs = prompts.len() * (contenders.len() + 1) * args.repetitions;
    let steps = Steps::new(ui, "measuring speculation", runs as u64);
    let mut samples: BTreeMap<(String, usize), Samples> = BTreeMap::new(); // (category, contender)
    for case in prompts {
        for repetition in 0..args.repetitions {
            let run = |speculation: &SpeculationParams| -> anyhow::Result<Summary> {
                let mut request = Request::new(case.prompt(style));
                request.max_tokens = Some(args.max_tokens);
                request.speculation = speculation.clone();
                let summary = engine.submit(request)?.wait()?;
                steps.step();
                Ok(summary)
            };
            // Plain decoding and every way of drafting take turns, so that a slow moment falls on all of them.
            let plain = tokens_per_second(&run(&SpeculationParams::off())?);
            for (i, contender) in contenders.iter().enumerate() {
                let summary = run(&contender.params)?;
                let speed = tokens_per_second(&summary);
                let sample = samples.entry((case.category.clone(), i)).or_default();
                // A prompt that is answered by one token has no speed.
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
    let results = samples.into_iter().map(|((category, i), mut s)| Result {
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
