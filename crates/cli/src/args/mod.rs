//! The command line: flags as plain data, a file for each command. Their combined meaning is
//! decided in `request` and in the commands.
//!
//! A flag has no `env` here: `command_line` gives every flag its variable, `SELFSPEC_` and its
//! name, and makes every switch take `true`, `false`, `1` and `0` from it. A flag that needs
//! another variable names it.

mod ab;
mod bench;
mod bench_serve;
mod cache;
mod command;
mod doctor;
mod headings;
mod held;
pub(crate) mod layer_skip;
mod model;
pub(crate) mod parse;
mod prompt;
mod run;
mod serve;
mod show;
mod tokenize;
mod train;
mod tune;
mod verify;

pub(crate) use ab::{AbArgs, RecordFileArg, ReplayArgs, Speed};
pub(crate) use bench::{BenchArgs, BenchCommand, BenchKind, Format, RecordArgs, RecordFormat};
pub(crate) use bench_serve::{BenchServeArgs, Endpoint, ServedSpeculation};
pub(crate) use cache::{LsArgs, PullArgs, RmArgs};
pub(crate) use command::{Cli, Color, Command, CompletionsArgs, Global};
pub(crate) use doctor::{DoctorArgs, DoctorFormat, Plant};
pub(crate) use held::HeldArgs;
pub(crate) use model::{ComputeArgs, HeadArgs};
pub(crate) use prompt::PromptArgs;
pub(crate) use run::{RunArgs, SamplingArgs, Spec, SpeculationArgs};
pub(crate) use serve::{LoadArgs, ServeArgs};
pub(crate) use show::ShowArgs;
pub(crate) use tokenize::TokenizeArgs;
pub(crate) use train::{TrainCommand, TrainHeadArgs};
pub(crate) use tune::TuneArgs;
pub(crate) use verify::VerifyArgs;
