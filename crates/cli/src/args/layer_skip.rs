//! The flags of `selfspec train layer-skip`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::headings::COMPUTE;
use super::model::ModelArg;
use super::parse;

#[derive(Debug, Args)]
pub(crate) struct TrainLayerSkipArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// The trained model: a GGUF file if MODEL is one, with its quantised tensors as F16, else a
    /// folder [default: layer-skip.gguf, or the folder layer-skip]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Folder for checkpoints and answers; a stopped run continues from it [default: PATH with
    /// .work]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: TextArgs,
    #[command(flatten)]
    pub(crate) skipping: SkippingArgs,
    #[command(flatten)]
    pub(crate) course: CourseArgs,
    #[command(flatten)]
    pub(crate) regression: RegressionArgs,
    /// Threads that compute [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = parse::threads, help_heading = COMPUTE)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct TextArgs {
    /// Text to train on: a plain file, or JSONL lines with `text`; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Vec<PathBuf>,
    /// Prompts to train on, with the model's own answers: JSONL lines with `prompt`, `messages` or
    /// `turns`; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Vec<PathBuf>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "256", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Length of the spans that the texts are cut into, in tokens
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse::count)]
    pub(crate) span: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Curriculum {
    /// One exit a step, in turn
    Rotate,
    /// The deepest exit first, the others one by one over the first half
    Gradual,
    /// All exits in every step
    All,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Layer skip (with --layer-dropout 0 --exit-weight 0: plain training)")]
pub(crate) struct SkippingArgs {
    /// Probability of skipping the last layer for a span, from 0 to 0.5; it is 0 at the first layer
    /// and rises with depth, and falls to 0 in the last quarter of the steps
    #[arg(long, value_name = "P", default_value = "0.2", value_parser = parse::zero_to_half)]
    pub(crate) layer_dropout: f32,
    /// Layers after which exits are trained [default: a quarter, a half and three quarters of the
    /// depth]
    #[arg(long, value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    pub(crate) exits: Vec<usize>,
    /// Weight of the exits' losses together, against 1 for the loss after all layers
    #[arg(long, value_name = "W", default_value = "0.3", value_parser = parse::zero_or_above)]
    pub(crate) exit_weight: f32,
    /// Which exits are trained in which steps
    #[arg(long, value_enum, value_name = "HOW", default_value = "rotate")]
    pub(crate) curriculum: Curriculum,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct CourseArgs {
    /// Passes over the data
    #[arg(long, value_name = "E", default_value = "1", value_parser = parse::above_zero)]
    pub(crate) epochs: f32,
    /// Most steps
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) steps: Option<usize>,
    /// Approximate number of tokens in a batch
    #[arg(long, value_name = "N", default_value = "4096", value_parser = parse::count)]
    pub(crate) batch: usize,
    /// Highest learning rate, reached after 4% of the steps; it then falls to a twentieth along a
    /// half cosine
    #[arg(long, value_name = "R", default_value = "0.0001", value_parser = parse::above_zero_to_one)]
    pub(crate) rate: f32,
    /// Seed of the held-out spans, the order of the others, the skipped layers, and the turns of
    /// the exits
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::seed)]
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Regression run (before and after)")]
pub(crate) struct RegressionArgs {
    /// Spans to hold out for evaluation, at most a tenth of all
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse::count)]
    pub(crate) held_out: usize,
    /// Evaluate on this text, and train on all the other text; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) eval_text: Vec<PathBuf>,
    /// Most that the full model's perplexity may rise, in percent; beyond it the result is refused
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = parse::percent)]
    pub(crate) tolerance: f32,
    /// Write the model even if the result is refused; the command still fails
    #[arg(long)]
    pub(crate) keep: bool,
}
