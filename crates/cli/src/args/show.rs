//! The flags of `selfspec show`.

use clap::Args;

use super::model::{KvArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Context length to estimate memory for, in positions [default: the model's own]
    #[arg(short, long, alias = "ctx-size", value_name = "N", value_parser = parse::count)]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
