//! Flags of `doctor`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model::{ComputeArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "md", value_name = "FORMAT")]
    pub(crate) output: DoctorFormat,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small built-in set]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use at most N prompts, spread over the file
    #[arg(long, value_name = "N", default_value = "24", value_parser = parse::count)]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "96", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Context lengths to measure costs at; the first one is used for the prompts
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse::count, default_value = "256,4096")]
    pub(crate) contexts: Vec<usize>,
    /// Plant a fault and show that it is found: a self-test
    #[arg(long, value_enum, value_name = "FAULT")]
    pub(crate) plant: Option<Plant>,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    /// Markdown: one line for each check, then the findings
    Md,
    /// One JSON object
    Json,
}

/// A fault to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// Drafts skip the norm before the head
    Norm,
    /// A rollback keeps one position too many
    Rollback,
    /// The engine takes a draft for half as expensive as it is
    Cost,
    /// Prompts of a kind that neither tuning nor training has seen
    Domain,
}
