//! Flags of `doctor`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::{ComputeArgs, ModelArg, parse};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(
        short,
        long,
        env = "SELFSPEC_OUTPUT",
        value_enum,
        default_value = "md",
        value_name = "FORMAT",
        hide_env = true
    )]
    pub(crate) output: DoctorFormat,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small set of this program]
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Option<PathBuf>,
    /// Use at most N prompts, spread over the file
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", default_value = "24", value_parser = parse::count, hide_env = true)]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "96")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Contexts at which costs are measured, in positions; the first one is taken for the prompts
    #[arg(long, env = "SELFSPEC_CONTEXTS", value_name = "N,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(default_value = "256,4096", hide_env = true)]
    pub(crate) contexts: Vec<usize>,
    /// Plant a fault and show that it is found: a self-test
    #[arg(long, env = "SELFSPEC_PLANT", value_enum, value_name = "FAULT", hide_env = true)]
    pub(crate) plant: Option<Plant>,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    /// Markdown: a line a check, then what was found
    Md,
    /// One JSON object
    Json,
}

/// A fault that is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// The norm before the head is left out where drafts leave the model
    Norm,
    /// A rollback leaves one position too many
    Rollback,
    /// The engine believes that a draft costs half of what it does
    Cost,
    /// Prompts of a kind that neither tuning nor training saw
    Domain,
}
