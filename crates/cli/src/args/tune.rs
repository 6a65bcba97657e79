//! The flags of `selfspec tune`.

use std::path::PathBuf;

use clap::Args;

use super::model::{ComputeArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small set of this program]
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
    /// Exit layers that are tried [default: ten over the depth]
    #[arg(long, value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    pub(crate) exits: Vec<usize>,
    /// Contexts at which costs are measured, in positions; the first one decides
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(default_value = "256,1024,4096")]
    pub(crate) contexts: Vec<usize>,
    /// Tokens of the draft vocabulary that layer skip is held to; 0: all of the model's [default: 8192, at most a quarter of the model's]
    #[arg(long, value_name = "N")]
    pub(crate) draft_vocab: Option<usize>,
    /// Write a report with curves to this file, a page that opens in a browser without a network
    #[arg(long, value_name = "FILE", default_value = "tune-report.html")]
    pub(crate) report: PathBuf,
    /// Only print and report: leave what later runs do as it is
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}
