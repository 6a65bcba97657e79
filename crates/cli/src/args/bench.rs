//! The flags of `selfspec bench` and `selfspec bench table`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use selfspec_speculate::DraftLen;

use super::bench_serve::{self, BenchServeArgs};
use super::model::{ComputeArgs, ModelArg};
use super::parse;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Markdown tables
    Md,
    /// One JSON object
    Json,
    /// One line for each figure, then a table for speculation
    Csv,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(crate) kind: Option<BenchKind>,
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchKind {
    /// Load a server with an OpenAI API, this one or another: throughput, TTFT, TPOT, ITL
    #[command(after_help = bench_serve::FIGURES)]
    Serve(Box<BenchServeArgs>),
    /// Compare plain decoding with several draft lengths, for one request and for a batch: latency,
    /// throughput, acceptance
    Table(RecordArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// A Markdown table
    Md,
    /// One JSON object
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "md", value_name = "FORMAT")]
    pub(crate) output: RecordFormat,
    /// Draft lengths to measure, in tokens a round
    #[arg(long, value_name = "K,...", value_delimiter = ',', value_parser = parse::draft_count)]
    #[arg(default_value = "2,3,5,6")]
    pub(crate) draft_lens: Vec<usize>,
    /// Draft with layers 0..L [default: the exit head; without one, 55% of the layers]
    #[arg(long, value_name = "L", value_parser = parse::count)]
    pub(crate) exit_layer: Option<usize>,
    /// Batch size of the batch columns
    #[arg(long, env = "SELFSPEC_BATCH_SIZE", value_name = "N", default_value = "8", value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) batch: usize,
    /// Temperature
    #[arg(long, value_name = "T", default_value = "0.7", value_parser = parse::temperature)]
    pub(crate) temp: f32,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small built-in set]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, value_name = "N", value_parser = parse::count, default_value = "16")]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "96", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Repetitions; results are medians
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = parse::count)]
    pub(crate) repetitions: usize,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "md", value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Exit layers to measure the draft cost of; the first one above half of the depth also drafts
    #[arg(long, value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    pub(crate) exits: Vec<usize>,
    /// Context lengths to measure passes at; each one after the first adds a table
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse::count, default_value = "256")]
    pub(crate) contexts: Vec<usize>,
    /// Also time each part of the forward pass
    #[arg(long)]
    pub(crate) profile: bool,
    /// Do not measure speculation on prompts
    #[arg(long)]
    pub(crate) no_speculation: bool,
    /// Tokens drafted a round by layer skip
    #[arg(long, value_name = "N|auto|window", value_parser = parse::draft_len, default_value = "4")]
    pub(crate) draft_len: DraftLen,
    /// Prompts to measure speculation on: JSONL lines with `prompt`, `messages` or `turns`
    /// [default: a few built-in ones]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) limit: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "96", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Repetitions; results are medians
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = parse::count)]
    pub(crate) repetitions: usize,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}
