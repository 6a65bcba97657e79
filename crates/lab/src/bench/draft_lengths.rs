//! Plain decoding against drafts of fixed lengths, alone and in a batch, as published tables of
//! self-speculation give them.

use std::time::Instant;

use selfspec_engine::{Engine, Generation, Request, RequestSummary};
use selfspec_speculate::{DraftLen, DrafterChoice, SamplingParams, SpecStats, SpeculationParams};
use serde::Serialize;

use crate::error::LabError;
use crate::exit_layer::exit_plan;
use crate::markdown::markdown_table;
use crate::progress::{Stage, StageProgress};
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::median;

/// Share of the layers below the exit, if none is named and the model has no exit head.
const DEPTH: f64 = 0.55;

/// The draft lengths that are compared, and how.
#[derive(Debug, Clone)]
pub struct DraftLengthOptions {
    /// Tokens drafted a round, a row each. Shape: (draft length).
    pub draft_lens: Vec<usize>,
    /// Draft with layers `0..exit_layer`; none: the exit head, or 55% of the layers of a model
    /// without one.
    pub exit_layer: Option<usize>,
    /// Requests at a time in the columns of a batch. The engine's steps must take as many.
    pub batch: usize,
    /// Temperature of every request.
    pub temperature: f32,
    /// How the prompts are given to the model.
    pub style: PromptStyle,
    /// Most tokens to generate for each prompt.
    pub max_tokens: usize,
    /// Repetitions; medians count.
    pub repetitions: usize,
}

/// Plain decoding and each draft length.
#[derive(Debug, Clone)]
pub struct DraftLengthTable {
    /// The drafter, in words.
    pub drafter: String,
    /// The options that it was measured with.
    pub options: DraftLengthOptions,
    /// Prompts that ran.
    pub prompts: usize,
    /// Plain decoding first, then a row for each draft length.
    pub rows: Vec<DraftLengthRow>,
}

/// The figures of a draft length.
#[derive(Debug, Clone, Serialize)]
pub struct DraftLengthRow {
    /// Tokens drafted a round; none: plain decoding.
    pub draft_len: Option<usize>,
    /// Median seconds of a token, one request at a time.
    pub latency_s: f64,
    /// Median tokens a second, one request at a time.
    pub tok_s: f64,
    /// Median tokens a second of all requests of a batch.
    pub batch_tok_s: f64,
    /// Accepted share of the judged drafts.
    pub acceptance: Option<f64>,
}

#[derive(Debug, Default)]
struct LengthSamples {
    latency_s: Vec<f64>,
    tok_s: Vec<f64>,
    batch_tok_s: Vec<f64>,
    stats: SpecStats,
}

/// Measures an engine that has nothing else to do.
///
/// # Errors
/// The exit layer does not fit the model, or the engine fails.
pub fn draft_lengths(
    engine: &Engine,
    prompts: &[PromptCase],
    options: &DraftLengthOptions,
    progress: &dyn StageProgress,
) -> Result<DraftLengthTable, LabError> {
    let n = engine.n_layers();
    let (drafter, words) = match options.exit_layer {
        None if engine.exit_head().is_some() => (DrafterChoice::ExitHead, "the exit head".to_owned()),
        given => {
            let exit = given.unwrap_or(((n as f64 * DEPTH).round() as usize).clamp(1, n.saturating_sub(1).max(1)));
            (DrafterChoice::LayerSkip(exit_plan(n, exit)?), format!("layers 0..{exit}"))
        }
    };
    let lengths: Vec<Option<usize>> =
        std::iter::once(None).chain(options.draft_lens.iter().copied().map(Some)).collect();
    let stage = Stage::begin(progress, "measuring", options.repetitions * lengths.len() * (prompts.len() + 1));
    let mut samples: Vec<LengthSamples> = lengths.iter().map(|_| LengthSamples::default()).collect();
    for _ in 0..options.repetitions {
        // All lengths take turns on each prompt, so that a slow moment falls on all of them.
        for case in prompts {
            for (length, samples) in lengths.iter().zip(&mut samples) {
                samples.add(&engine.submit(request(options, case, &drafter, *length))?.wait()?);
                stage.step();
            }
        }
        for (length, samples) in lengths.iter().zip(&mut samples) {
            let many = prompts.iter().cycle().take(options.batch.max(prompts.len()));
            let started = Instant::now();
            let submitted = many.map(|case| engine.submit(request(options, case, &drafter, *length)));
            let running: Vec<Generation> = submitted.collect::<Result<_, _>>()?;
            let mut tokens = 0;
            for generation in running {
                tokens += generation.wait()?.completion_tokens;
            }
            samples.batch_tok_s.push(tokens as f64 / started.elapsed().as_secs_f64());
            stage.step();
        }
    }
    let rows = lengths.iter().zip(&mut samples).map(|(length, samples)| samples.row(*length)).collect();
    Ok(DraftLengthTable { drafter: words, options: options.clone(), prompts: prompts.len(), rows })
}

fn request(options: &DraftLengthOptions, case: &PromptCase, drafter: &DrafterChoice, length: Option<usize>) -> Request {
    let mut request = Request::new(case.prompt(options.style));
    request.max_tokens = Some(options.max_tokens);
    request.sampling = SamplingParams { temperature: options.temperature, ..SamplingParams::default() };
    request.speculation = match length {
        None => SpeculationParams::off(),
        Some(k) => SpeculationParams {
            drafter: drafter.clone(),
            draft_len: DraftLen::Fixed(k),
            always: true,
            ..SpeculationParams::default()
        },
    };
    request
}

impl LengthSamples {
    /// Takes an answer that ran alone.
    fn add(&mut self, summary: &RequestSummary) {
        self.stats.merge(&summary.stats);
        // An answer of one token has no speed.
        if summary.completion_tokens > 1 && summary.predicted_s > 0.0 {
            let each = summary.predicted_s / (summary.completion_tokens - 1) as f64;
            self.latency_s.push(each);
            self.tok_s.push(1.0 / each);
        }
    }

    fn row(&mut self, draft_len: Option<usize>) -> DraftLengthRow {
        DraftLengthRow {
            draft_len,
            latency_s: median(&mut self.latency_s),
            tok_s: median(&mut self.tok_s),
            batch_tok_s: median(&mut self.batch_tok_s),
            acceptance: self.stats.acceptance(),
        }
    }
}

impl DraftLengthTable {
    /// A table for people. `model` names the model in the heading.
    pub fn markdown(&self, model: &str) -> String {
        let batch = self.options.batch;
        let over = |x: f64, y: f64| if y > 0.0 { format!("{:.2}", x / y) } else { "-".to_owned() };
        let cells = |row: &DraftLengthRow, plain: &DraftLengthRow| {
            vec![
                row.draft_len.map_or("plain".to_owned(), |k| format!("k = {k}")),
                over(row.latency_s, plain.latency_s),
                over(row.tok_s, plain.tok_s),
                over(row.batch_tok_s, plain.batch_tok_s),
                row.acceptance.map_or("-".to_owned(), |a| format!("{a:.2}")),
                format!("{:.1} ms", row.latency_s * 1e3),
                format!("{:.0} tok/s", row.batch_tok_s),
            ]
        };
        let rows: Vec<Vec<String>> =
            self.rows.first().map_or(Vec::new(), |plain| self.rows.iter().map(|row| cells(row, plain)).collect());
        let (throughput, absolute) = (format!("throughput b={batch}"), format!("tokens b={batch}"));
        let head = ["setting", "latency b=1", "throughput b=1", &throughput, "acceptance", "token b=1", &absolute];
        format!(
            "{model}: {} draft, temperature {}, {} prompts, up to {} tokens; relative to plain decoding\n\n{}\n\
             latency: of a token, less is better; throughput: tokens a second of all sequences; b: sequences at a time; \
             acceptance: drafts accepted of those drafted; the last two columns are absolute.\n",
            self.drafter,
            self.options.temperature,
            self.prompts,
            self.options.max_tokens,
            markdown_table(&head, &rows)
        )
    }
}
