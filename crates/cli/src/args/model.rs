//! Flags of every command that runs a model: which one, and how it computes.

use clap::Args;
use selfspec::{Isa, KvType};
use selfspec_engine::{EngineOptions, ExitHeadSource};

use super::headings::{COMPUTE, SPECULATION};
use super::parse;

/// The model of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArg {
    /// Model: an alias, a path, hf:org/repo[/file] or pypi:package==version[/member]
    #[arg(value_name = "MODEL", env = "SELFSPEC_MODEL", default_value = selfspec::DEFAULT_MODEL_NAME, hide_env = true)]
    #[arg(value_parser = parse::not_empty)]
    pub(crate) model: String,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = COMPUTE)]
pub(crate) struct ComputeArgs {
    /// Threads that compute [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Instruction set, which may change rounding: scalar, avx2, avx512 or neon [default: the best
    /// that this processor has]
    #[arg(long, value_name = "SET", hide_short_help = true)]
    pub(crate) isa: Option<Isa>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    #[command(flatten)]
    pub(crate) heads: HeadArgs,
}

impl ComputeArgs {
    /// What they ask of an engine.
    pub(crate) fn engine(&self) -> EngineOptions {
        EngineOptions { threads: self.threads, isa: self.isa, kv_type: self.kv.kv_type, ..EngineOptions::default() }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(crate) struct HeadArgs {
    /// Exit head to draft with: a file that was trained for the model, or off [default: the model's
    /// built-in head, if there is one]
    #[arg(long, value_name = "FILE|off", value_parser = parse::exit_head)]
    pub(crate) exit_head: Option<ExitHeadSource>,
    /// Ignore the results of `selfspec tune` for the model
    #[arg(long, hide_short_help = true)]
    pub(crate) no_tuning: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = COMPUTE)]
pub(crate) struct KvArgs {
    /// Type of the KV cache: f16, or q8 for about half the memory, which may change the output
    #[arg(long, value_name = "f16|q8", default_value = "f16", hide_short_help = true)]
    pub(crate) kv_type: KvType,
}
