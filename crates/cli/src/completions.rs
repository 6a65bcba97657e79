//! `selfspec completions`: scripts for shells.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::output;

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "selfspec", &mut script);
    Ok(output::print(&String::from_utf8(script)?)?)
}
