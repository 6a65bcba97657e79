//! The `selfspec` command. A subcommand turns flags into plain data, calls a library (`selfspec`,
//! `selfspec-lab`, `selfspec-server`, `selfspec-hub`), and prints the result.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0, 1 for a failure,
//! 2 for wrong usage, 130 when interrupted. Without a terminal there is no colour and no progress
//! bar. A broken pipe ends the program quietly.

#![forbid(unsafe_code)]

mod ab;
mod args;
mod bench;
mod bench_serve;
mod chat;
mod command_line;
mod completions;
mod doctor;
mod failure;
mod generation;
mod ls;
mod model;
mod out_path;
mod output;
mod progress;
mod prompt_input;
mod pull;
mod replay;
mod request;
mod rm;
mod run;
mod serve;
mod show;
mod signals;
mod stats;
mod tokenize;
mod train;
mod tune;
mod verify;

use std::process::ExitCode;

use args::Command;
use command_line::CommandLine;
use output::Ui;

fn main() -> ExitCode {
    let line = match CommandLine::read() {
        Ok(line) => line,
        Err(error) => return command_line::print_error(&error),
    };
    let ui = Ui::new(&line.cli.global);
    line.yielded.iter().for_each(|variable| ui.detail(variable));
    let result = line.check().and_then(|()| dispatch(&line.cli.command, &ui));
    ExitCode::from(failure::report(result, &line.cli.command, &ui))
}

fn dispatch(command: &Command, ui: &Ui) -> anyhow::Result<()> {
    output::log_to_stderr(ui);
    signals::install()?;
    match command {
        Command::Run(args) => run::run(args, ui),
        Command::Serve(args) => serve::run(args, ui),
        Command::Ab(args) => ab::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
        Command::Pull(args) => pull::run(args, ui),
        Command::Ls(args) => ls::run(args, ui),
        Command::Rm(args) => rm::run(args, ui),
        Command::Show(args) => show::run(args, ui),
        Command::Verify(args) => verify::run(args, ui),
        Command::Bench(args) => bench::run(args, ui),
        Command::Tune(args) => tune::run(args, ui),
        Command::Doctor(args) => doctor::run(args, ui),
        Command::Train(args) => train::run(args, ui),
        Command::Tokenize(args) => tokenize::run(args, ui),
        Command::Completions(args) => completions::run(args),
    }
}
