//! The flags that say what the text must be, or is expected to be.

use std::path::PathBuf;

use clap::Args;

use super::parse;

const HELD: &str = "Structure";

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = HELD)]
#[group(multiple = true)]
pub(crate) struct HeldArgs {
    /// The output is JSON that matches the schema in this file; `object`: any JSON object
    #[arg(long, value_name = "FILE", value_parser = parse::not_empty, conflicts_with_all = ["regex", "lark"])]
    pub(crate) json_schema: Option<String>,
    /// The output matches this regular expression from end to end
    #[arg(long, value_name = "REGEX", value_parser = parse::not_empty, conflicts_with = "lark")]
    pub(crate) regex: Option<String>,
    /// The output matches the grammar in this file (llguidance's variant of Lark)
    #[arg(long, value_name = "FILE")]
    pub(crate) lark: Option<PathBuf>,
    /// The output is expected to resemble the text in this file: drafts are copied from it (never
    /// changes the output)
    #[arg(long, value_name = "FILE")]
    pub(crate) prediction: Option<PathBuf>,
}
