//! The flags of `selfspec tune`.

use std::path::PathBuf;

use clap::Args;

use super::model::{ComputeArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small built-in set]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, value_name = "N", default_value = "200", value_parser = parse::count)]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "64", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Temperature
    #[arg(long, value_name = "T", default_value = "0", value_parser = parse::temperature)]
    pub(crate) temp: f32,
    /// Exit layers to try [default: ten over the depth]
    #[arg(long, value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    pub(crate) exits: Vec<usize>,
    /// Context lengths to measure costs at; the first one decides
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(default_value = "256,1024,4096")]
    pub(crate) contexts: Vec<usize>,
    /// Size of the draft vocabulary for layer skip; 0: the whole vocabulary [default: 8192, at most
    /// a quarter of the model's]
    #[arg(long, value_name = "N")]
    pub(crate) draft_vocab: Option<usize>,
    /// Write a report with curves to this file, a self-contained HTML page
    #[arg(long, value_name = "FILE", default_value = "tune-report.html")]
    pub(crate) report: PathBuf,
    /// Only print and report: do not change later runs
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}
