//! The subcommands, and the flags that all of them take.

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::ab::{AbArgs, ReplayArgs};
use super::bench::BenchCommand;
use super::cache::{LsArgs, PullArgs, RmArgs};
use super::doctor::DoctorArgs;
use super::headings::GLOBAL;
use super::run::RunArgs;
use super::serve::ServeArgs;
use super::show::ShowArgs;
use super::tokenize::TokenizeArgs;
use super::train::TrainCommand;
use super::tune::TuneArgs;
use super::verify::VerifyArgs;

/// Runs language models on the CPU with lossless self-speculative decoding: the same tokens as
/// plain decoding, in fewer passes.
#[derive(Debug, Parser)]
#[command(name = "selfspec", version, max_term_width = 120)]
#[command(after_help = "Every flag can also be set by a variable: --draft-len by SELFSPEC_DRAFT_LEN, and so on.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = GLOBAL)]
pub(crate) struct Global {
    /// Print nothing but data and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more about what happens
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Use models of the cache only and fetch nothing
    #[arg(long, global = true)]
    pub(crate) offline: bool,
    /// When to use colour; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate text from a prompt, or chat on a terminal
    Run(Box<RunArgs>),
    /// Serve a model over HTTP with an OpenAI API
    Serve(ServeArgs),
    /// Compare the requests with and without speculation in a server's record
    Ab(AbArgs),
    /// Send recorded requests to a server again, and compare the answers
    Replay(ReplayArgs),
    /// Fetch models into the cache and print their paths
    Pull(PullArgs),
    /// List the models in the cache
    Ls(LsArgs),
    /// Remove models from the cache
    Rm(RmArgs),
    /// Show a model's architecture, tensor types and memory
    Show(ShowArgs),
    /// Prove on this machine that speculation changes no token
    Verify(VerifyArgs),
    /// Measure speed: prefill, decoding, cost of passes and drafts, speculation
    Bench(BenchCommand),
    /// Find the fastest way to draft for a model, on your prompts and machine, and use it in later
    /// runs
    Tune(TuneArgs),
    /// Find out why speculation is slow or output is wrong, on your prompts and machine
    Doctor(DoctorArgs),
    /// Train an exit head for a model, or a model for layer skip
    #[command(subcommand)]
    Train(TrainCommand),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
