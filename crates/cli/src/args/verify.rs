//! The flags of `selfspec verify`.

use std::path::PathBuf;

use clap::Args;
use selfspec::Isa;

use super::model::{HeadArgs, KvArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small built-in set]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) limit: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "64", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Thread counts
    #[arg(short, long, value_name = "N,...", default_value = "1,2,3", value_delimiter = ',')]
    #[arg(value_parser = parse::threads)]
    pub(crate) threads: Vec<usize>,
    /// Instruction sets [default: the best this processor has]
    #[arg(long, value_name = "SET,...", value_delimiter = ',')]
    pub(crate) isa: Vec<Isa>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    #[command(flatten)]
    pub(crate) heads: HeadArgs,
    /// Run every prompt under every setting
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}
