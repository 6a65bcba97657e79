//! `selfspec bench table`: plain decoding against drafts of fixed lengths, alone and in a batch, as published records of self-speculation give
//! them.

use std::time::Instant;

use selfspec_engine::{
    DraftLen, DrafterChoice, Engine, EngineOptions, Generation, LayerPlan, Request, SamplingParams, SpecStats,
    SpeculationParams, Summary,
};
use serde::Serialize;

use super::report::table;
use crate::args::{RecordArgs, RecordFormat};
use crate::model;
use crate::output::{self, Ui};
use crate::progress::Steps;
use crate::request::exit_plan;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, PromptCase};
use selfspec_lab::statistics::median;

/// Share of the layers below the exit, where none is named and the model has no exit head.
const DEPTH: f64 = 0.55;

/// One line of the record.
#[derive(Debug, Clone, Serialize)]
struct Line {
    /// Tokens drafted a round; none: plain decoding.
    draft_len: Option<usize>,
    /// Median seconds of a token, alone.
    latency_s: f64,
    /// Tokens a second, alone and in a batch.
    tok_s: f64,
    batch_tok_s: f64,
    /// Accepted share of the judged drafts.
    acceptance: Option<f64>,
}

#[derive(Debug, Default)]
struct Samples {
    latency: Vec<f64>,
    tok_s: Vec<f64>,
    batch_tok_s: Vec<f64>,
    stats: SpecStats,
}

pub(crate) fn run(args: &RecordArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), Some(args.limit))?;
    let loaded = model::load(&args.model.model, args.compute.threads, &args.compute.heads, ui)?;
    let options = EngineOptions { max_batch: args.batch, ..args.compute.engine() };
    let engine = Engine::open_with(&loaded, &options)?;
    let n = engine.n_layers();
    let (drafter, words) = match args.exit_layer {
        None if engine.exit_head().is_some() => (DrafterChoice::ExitHead, "the exit head".to_owned()),
        given => {
            let exit = given.unwrap_or(((n as f64 * DEPTH).round() as usize).clamp(1, n.saturating_sub(1).max(1)));
            let plan: LayerPlan = exit_plan("--exit-layer", n, exit)?;
            (DrafterChoice::LayerSkip(plan), format!("layers 0..{exit}"))
        }
    };
    let style = PromptStyle::of(args.raw, engine.info());
    let lengths: Vec<Option<usize>> = std::iter::once(None).chain(args.draft_lens.iter().copied().map(Some)).collect();
    let steps = Steps::new(ui, "measuring", (args.repetitions * lengths.len() * (prompts.len() + 1)) as u64);
    let mut samples: Vec<Samples> = lengths.iter().map(|_| Samples::default()).collect();
    for _ in 0..args.repetitions {
        // All lengths take turns on each prompt, so that a slow moment falls on all of them.
        for case in &prompts {
            for (length, samples) in lengths.iter().zip(&mut samples) {
                let summary = engine.submit(request(args, case, style, &drafter, *length))?.wait()?;
                samples.alone(&summary);
                steps.step();
            }
        }
        for (length, samples) in lengths.iter().zip(&mut samples) {
            let many = prompts.iter().cycle().take(args.batch.max(prompts.len()));
            let started = Instant::now();
            let requests: Vec<Generation> = many
                .map(|case| engine.submit(request(args, case, style, &drafter, *length)))
                .collect::<Result<_, _>>()?;
            let mut tokens = 0;
            for generation in requests {
                tokens += generation.wait()?.completion_tokens;
            }
            samples.batch_tok_s.push(tokens as f64 / started.elapsed().as_secs_f64());
            steps.step();
        }
    }
    drop(steps);
    let lines: Vec<Line> = lengths.iter().zip(&mut samples).map(|(length, s)| s.line(*length)).collect();
    match args.output {
        RecordFormat::Md => Ok(output::print(&markdown(args, &words, prompts.len(), &lines))?),
        RecordFormat::Json => output::print_json(&serde_json::json!({
            "model": args.model.model, "drafter": words, "temperature": args.temp, "batch": args.batch, "lines": lines,
        })),
    }
}

fn request(
    args: &RecordArgs,
    case: &PromptCase,
    style: PromptStyle,
    drafter: &DrafterChoice,
    length: Option<usize>,
) -> Request {
    let mut request = Request::new(case.prompt(style));
    request.max_tokens = Some(args.max_tokens);
    request.sampling = SamplingParams { temperature: args.temp, ..SamplingParams::default() };
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

impl Samples {
    fn alone(&mut self, summary: &Summary) {
        self.stats.merge(&summary.stats);
        // An answer of one token has no speed.
        if summary.completion_tokens > 1 && summary.predicted_s > 0.0 {
            let each = summary.predicted_s / (summary.completion_tokens - 1) as f64;
            self.latency.push(each);
            self.tok_s.push(1.0 / each);
        }
    }

    fn line(&mut self, draft_len: Option<usize>) -> Line {
        Line {
            draft_len,
            latency_s: median(&mut self.latency),
            tok_s: median(&mut self.tok_s),
            batch_tok_s: median(&mut self.batch_tok_s),
            acceptance: self.stats.acceptance(),
        }
    }
}

fn markdown(args: &RecordArgs, drafter: &str, prompts: usize, lines: &[Line]) -> String {
    let batch = args.batch;
    let plain = &lines[0];
    let over = |x: f64, y: f64| if y > 0.0 { format!("{:.2}", x / y) } else { "-".to_owned() };
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            vec![
                line.draft_len.map_or("plain".to_owned(), |k| format!("k = {k}")),
                over(line.latency_s, plain.latency_s),
                over(line.tok_s, plain.tok_s),
                over(line.batch_tok_s, plain.batch_tok_s),
                line.acceptance.map_or("-".to_owned(), |a| format!("{a:.2}")),
                format!("{:.1} ms", line.latency_s * 1e3),
                format!("{:.0} tok/s", line.batch_tok_s),
            ]
        })
        .collect();
    let (throughput, absolute) = (format!("throughput b={batch}"), format!("tokens b={batch}"));
    let head = ["setting", "latency b=1", "throughput b=1", &throughput, "acceptance", "token b=1", &absolute];
    format!(
        "{}: {drafter} draft, temperature {}, {prompts} prompts, up to {} tokens; relative to plain decoding\n\n{}\nlatency: of a token, less is better; throughput: tokens a second of all sequences; b: sequences at a time; acceptance: drafts accepted of those drafted; the last two columns are absolute.\n",
        args.model.model,
        args.temp,
        args.max_tokens,
        table(&head, &rows)
    )
}
