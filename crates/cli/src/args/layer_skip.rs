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
    /// The trained model: a GGUF file if MODEL is one, whose quantised tensors become F16, else a folder [default: layer-skip.gguf, or the folder layer-skip]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Folder for checkpoints and answers, from which a run that was ended goes on [default: PATH with .work]
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
    /// Prompts that the model answers itself, to train on both: JSONL lines with `prompt`, `messages` or `turns`; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Vec<PathBuf>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "256", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Tokens of a span: texts are read one after the other and cut into spans
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse::count)]
    pub(crate) span: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Curriculum {
    /// One exit a step, by turns
    Rotate,
    /// The deepest exit first, the others one by one over the first half
    Gradual,
    /// All exits in every step
    All,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Layer skip (with --layer-dropout 0 --exit-weight 0: plain training)")]
pub(crate) struct SkippingArgs {
    /// Probability with which the last layer is left out for a span, from 0 to 0.5; it rises to that from 0 at the first layer, so that the mean is half
    /// of it, and falls to 0 in the last quarter of the steps
    #[arg(long, value_name = "P", default_value = "0.2", value_parser = parse::zero_to_half)]
    pub(crate) layer_dropout: f32,
    /// Numbers of layers after which an exit is trained [default: a quarter, a half and three quarters of the depth]
    #[arg(long, value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    pub(crate) exits: Vec<usize>,
    /// Weight of the exits' losses together, against 1 for the loss after all layers
    #[arg(long, value_name = "W", default_value = "0.3", value_parser = parse::zero_or_above)]
    pub(crate) exit_weight: f32,
    /// In which steps which exits count
    #[arg(long, value_enum, value_name = "HOW", default_value = "rotate")]
    pub(crate) curriculum: Curriculum,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct CourseArgs {
    /// Times that every span is seen
    #[arg(long, value_name = "E", default_value = "1", value_parser = parse::above_zero)]
    pub(crate) epochs: f32,
    /// Most steps, if fewer than the epochs have
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) steps: Option<usize>,
    /// Tokens in a batch, about
    #[arg(long, value_name = "N", default_value = "4096", value_parser = parse::count)]
    pub(crate) batch: usize,
    /// Highest learning rate; it rises to that in the first 4% of the steps, and falls to a twentieth along a half cosine
    #[arg(long, value_name = "R", default_value = "0.0001", value_parser = parse::above_zero_to_one)]
    pub(crate) rate: f32,
    /// Decides the spans that are held out, the order of the others, the layers that are left out, and the turns of the exits
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::seed)]
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Regression run (before and after)")]
pub(crate) struct RegressionArgs {
    /// Spans of the text that are held out to judge by, at most a tenth of them
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse::count)]
    pub(crate) held_out: usize,
    /// Judge by this text, and train on all of the other; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) eval_text: Vec<PathBuf>,
    /// By how many percent the full pass's perplexity may rise before the result is refused
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = parse::percent)]
    pub(crate) tolerance: f32,
    /// Write the model even if its perplexity rose beyond that; the command still fails
    #[arg(long)]
    pub(crate) keep: bool,
}
