//! The flags of `selfspec show`.

use clap::Args;

use super::model::{KvArgs, ModelArg};
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Positions of the context to estimate memory for [default: what the model was made for]
    #[arg(short, long, value_name = "N", value_parser = parse::count)]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
