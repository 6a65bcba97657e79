//! `selfspec bench`: what passes cost on this machine, and the speed-up of speculation; `bench
//! table`: drafts of fixed lengths; `bench serve`: a server under load.

use selfspec_engine::{Engine, EngineOptions};
use selfspec_lab::LabError;
use selfspec_lab::bench::{BenchOptions, DraftLengthOptions, bench, draft_lengths};
use selfspec_lab::prompts::{self, PromptStyle};

use crate::args::{BenchArgs, BenchCommand, BenchKind, Format, RecordArgs, RecordFormat};
use crate::failure::of_flag;
use crate::output::{self, Ui};
use crate::progress::LabBars;
use crate::{bench_serve, model};

pub(crate) fn run(command: &BenchCommand, ui: &Ui) -> anyhow::Result<()> {
    match &command.kind {
        Some(BenchKind::Serve(args)) => bench_serve::run(args, ui),
        Some(BenchKind::Table(args)) => run_table(args, ui),
        None => run_bench(&command.bench, ui),
    }
}

fn run_bench(args: &BenchArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), args.limit)?;
    let prompts = if args.prompts.is_none() { prompts::one_of_each(prompts) } else { prompts };
    let engine = model::engine(&args.model.model, &args.compute, ui)?;
    let options = BenchOptions {
        contexts: args.contexts.clone(),
        exits: args.exits.clone(),
        repetitions: args.repetitions,
        profile: args.profile,
        speculation: !args.no_speculation,
        draft_len: args.draft_len,
        style: PromptStyle::of(args.raw, engine.info()),
        max_tokens: args.max_tokens,
    };
    let report = bench(&engine, &prompts, &options, &LabBars::new(ui)).map_err(|error| match error {
        LabError::ShortContext { longest: Some(longest), .. } => {
            anyhow::anyhow!("{error}: --contexts can be up to {longest}")
        }
        error => of_flag("--exits", error),
    })?;
    match args.output {
        Format::Md => Ok(output::print(&report.markdown(&args.model.model, args.draft_len))?),
        Format::Json => output::print_json(&report.json()),
        Format::Csv => Ok(output::print(&report.csv())?),
    }
}

fn run_table(args: &RecordArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), Some(args.limit))?;
    let loaded = model::load(&args.model.model, args.compute.threads, &args.compute.heads, ui)?;
    let engine = Engine::open_with(&loaded, &EngineOptions { max_batch: args.batch, ..args.compute.engine() })?;
    let options = DraftLengthOptions {
        draft_lens: args.draft_lens.clone(),
        exit_layer: args.exit_layer,
        batch: args.batch,
        temperature: args.temp,
        style: PromptStyle::of(args.raw, engine.info()),
        max_tokens: args.max_tokens,
        repetitions: args.repetitions,
    };
    let table = draft_lengths(&engine, &prompts, &options, &LabBars::new(ui));
    let table = table.map_err(|error| of_flag("--exit-layer", error))?;
    match args.output {
        RecordFormat::Md => Ok(output::print(&table.markdown(&args.model.model))?),
        RecordFormat::Json => output::print_json(&serde_json::json!({
            "model": args.model.model,
            "drafter": table.drafter,
            "temperature": args.temp,
            "batch": args.batch,
            "lines": table.rows,
        })),
    }
}
