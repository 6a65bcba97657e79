//! The flags of `selfspec tokenize`.

use clap::Args;

use super::model::ModelArg;
use super::prompt::PromptArgs;

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Put the model's BOS token before the text, if it wants one
    #[arg(long)]
    pub(crate) bos: bool,
    /// Render the text as a user's message with the model's chat template
    #[arg(long)]
    pub(crate) chat: bool,
    /// Print the number of tokens only
    #[arg(long)]
    pub(crate) count: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
