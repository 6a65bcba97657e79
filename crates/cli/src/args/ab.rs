//! The flags of `selfspec ab` and `selfspec replay`, which read what `selfspec serve --record`
//! wrote.

use std::path::PathBuf;

use clap::Args;

use super::headings::OUTPUT;
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct AbArgs {
    #[command(flatten)]
    pub(crate) file: RecordFileArg,
    /// Also compare requests whose arm was not drawn: those that chose their speculation, and those
    /// of a server without --speculate-share
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object instead of the table
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) file: RecordFileArg,
    /// Address of the server, without /v1
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = parse::not_empty)]
    pub(crate) url: String,
    /// API key to send
    #[arg(long, value_name = "KEY", value_parser = parse::not_empty, hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Speed of the replay: 2 is twice as fast as recorded; max sends each request as soon as
    /// --concurrency allows
    #[arg(long, value_name = "X|max", default_value = "1", value_parser = speed)]
    pub(crate) speed: Speed,
    /// Most requests at a time; others wait
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse::count)]
    pub(crate) concurrency: usize,
    /// Print one JSON object instead of the summary
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecordFileArg {
    /// Record that `selfspec serve --record FILE` wrote
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    /// Skip lines that cannot be read, instead of failing
    #[arg(long)]
    pub(crate) skip_damaged: bool,
}

/// How fast recorded time passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    Times(f64),
    Max,
}

fn speed(s: &str) -> Result<Speed, String> {
    if s.trim() == "max" {
        return Ok(Speed::Max);
    }
    let speed = s.trim().parse::<f64>().ok().filter(|speed| speed.is_finite() && *speed > 0.0);
    speed.map(Speed::Times).ok_or_else(|| "expected a number above 0, or max".to_owned())
}
