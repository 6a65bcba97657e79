//! The flags that say what the text must be, or is expected to be.

use std::path::PathBuf;

use clap::Args;

use super::parse;

const HELD: &str = "Structure";

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = HELD)]
#[group(multiple = true)]
pub(crate) struct HeldArgs {
    /// The text must be a JSON value by the schema in this file; `object`: any JSON object
    #[arg(long, value_name = "FILE", value_parser = parse::not_empty, conflicts_with_all = ["regex", "lark"])]
    pub(crate) json_schema: Option<String>,
    /// The text must match this regular expression from end to end
    #[arg(long, value_name = "REGEX", value_parser = parse::not_empty, conflicts_with = "lark")]
    pub(crate) regex: Option<String>,
    /// The text must be what the grammar in this file describes (llguidance's variant of Lark)
    #[arg(long, value_name = "FILE")]
    pub(crate) lark: Option<PathBuf>,
    /// The text is expected to be much like that in this file: drafts are copied from it (never changes the output)
    #[arg(long, value_name = "FILE")]
    pub(crate) prediction: Option<PathBuf>,
}
