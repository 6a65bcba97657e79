//! The `selfspec` command. Thin: the subcommands parse flags into plain data, hand it to the engine and print what comes back.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 when
//! interrupted. Without a terminal there is no colour and no progress bar; a broken pipe ends the program quietly.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod chat;
mod completions;
mod failure;
mod ls;
mod model;
mod output;
mod progress;
mod prompts;
mod pull;
mod request;
mod run;
mod show;
mod signals;
mod stats;
mod tokenize;
mod verify;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use output::Ui;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ui = Ui::new(&cli.global);
    let result = dispatch(&cli.command, &ui);
    ExitCode::from(failure::report(result, &ui))
}

fn dispatch(command: &Command, ui: &Ui) -> anyhow::Result<()> {
    output::log_to_stderr(ui);
    signals::install()?;
    match command {
        Command::Run(args) => run::run(args, ui),
        Command::Pull(args) => pull::run(args, ui),
        Command::Ls(args) => ls::run(args, ui),
        Command::Show(args) => show::run(args, ui),
        Command::Verify(args) => verify::run(args, ui),
        Command::Bench(args) => bench::run(args, ui),
        Command::Tokenize(args) => tokenize::run(args, ui),
        Command::Completions(args) => completions::run(args),
    }
}
