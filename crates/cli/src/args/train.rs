//! The flags of `selfspec train head`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::layer_skip::TrainLayerSkipArgs;
use super::model::ModelArg;
use super::parse::{self, Features};

#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Train an exit head, a small layer that drafts for the model, on the model's own answers
    Head(Box<TrainHeadArgs>),
    /// Train the whole model on text so that its first layers alone can draft: layer dropout and
    /// early-exit losses
    LayerSkip(Box<TrainLayerSkipArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TrainHeadArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// The head's file
    #[arg(short, long, value_name = "FILE", default_value = "exit-head.safetensors")]
    pub(crate) out: PathBuf,
    /// Folder for answers, hidden states and checkpoints; a stopped run continues from it [default:
    /// the file's name with .work]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) head: HeadPlanArgs,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
    /// Threads that compute [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns`, and optionally `category`; can be
    /// given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Vec<PathBuf>,
    /// Use at most N prompts of each file
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) limit: Option<usize>,
    /// Prompts that the model writes itself [default: 0, or 2000 without --prompts]
    #[arg(long, value_name = "N")]
    pub(crate) own_prompts: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "256", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Longest text, prompt and answer, in tokens
    #[arg(long, value_name = "N", default_value = "1024", value_parser = parse::count)]
    pub(crate) max_length: usize,
    /// Share of the answers that are sampled at temperature 0.8; the others are greedy
    #[arg(long, value_name = "P", default_value = "0.35", value_parser = parse::zero_to_one)]
    pub(crate) sampled: f32,
    /// Share of the prompts that are given as plain text, without the model's chat template
    #[arg(long, value_name = "P", default_value = "0.1", value_parser = parse::zero_to_one)]
    pub(crate) plain: f32,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Head")]
pub(crate) struct HeadPlanArgs {
    /// Layers of the model below the head; at 0 it reads the embedding
    #[arg(long, value_name = "L", default_value = "0")]
    pub(crate) head_layer: usize,
    /// Layers whose hidden states of the previous token the head reads, or none [default: two
    /// thirds of the depth, and the last]
    #[arg(long, value_name = "L,...|none", value_parser = parse::features)]
    pub(crate) features: Option<Features>,
    /// Width of the head's feed-forward part; 0 is attention alone [default: the model's]
    #[arg(long, value_name = "N")]
    pub(crate) ffn: Option<usize>,
    /// Number of tokens that the head can propose: the most frequent ones in the answers
    #[arg(long, value_name = "N", default_value = "8192", value_parser = parse::count)]
    pub(crate) draft_vocab: usize,
    /// Store the matrices in BF16 instead of Q8_0
    #[arg(long)]
    pub(crate) bf16: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Passes over the answers
    #[arg(long, value_name = "E", default_value = "4", value_parser = parse::above_zero)]
    pub(crate) epochs: f32,
    /// Approximate number of tokens in a batch
    #[arg(long, value_name = "N", default_value = "400", value_parser = parse::count)]
    pub(crate) batch: usize,
    /// Highest learning rate
    #[arg(long, value_name = "R", default_value = "0.0005", value_parser = parse::above_zero_to_one)]
    pub(crate) rate: f32,
    /// Start from this head instead of the model's last layer; its design must be the same, its
    /// vocabulary may differ
    #[arg(long, value_name = "HEAD")]
    pub(crate) from: Option<PathBuf>,
    /// Drafts of a round to learn from
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse::rollout)]
    pub(crate) rollout: usize,
    /// Share of the steps that learn from the first draft alone, at a third of the cost
    #[arg(long, value_name = "P", default_value = "0.2", value_parser = parse::zero_to_one)]
    pub(crate) rollout_from: f32,
    /// Seed of prompts, sampled answers, the order of the answers and the held-out ones
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::seed)]
    pub(crate) seed: u64,
}
