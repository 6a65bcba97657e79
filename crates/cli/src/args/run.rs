//! The flags of `selfspec run`.

use std::ops::Range;

use clap::{Args, ValueEnum};
use selfspec::RequestedDrafter;
use selfspec_speculate::DraftLen;

use super::headings::{OUTPUT, SAMPLING, SPECULATION};
use super::held::HeldArgs;
use super::model::{ComputeArgs, ModelArg};
use super::parse;
use super::prompt::PromptArgs;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// System message
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Use the prompt as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Most tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value_t = selfspec::DEFAULT_MAX_TOKENS, value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Length of the context, in positions [default: the model's own]
    #[arg(short, long, alias = "ctx-size", value_name = "N", value_parser = parse::count)]
    pub(crate) context: Option<usize>,
    /// Stop before this string; can be given several times
    #[arg(long, value_name = "TEXT", value_parser = parse::not_empty)]
    pub(crate) stop: Vec<String>,
    #[command(flatten)]
    pub(crate) held: HeldArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
    #[command(flatten)]
    pub(crate) output: RunOutputArgs,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SAMPLING)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the most probable token
    #[arg(long, value_name = "T", default_value = "0", value_parser = parse::temperature)]
    pub(crate) temp: f32,
    /// Keep only the K most probable tokens; 0 is off
    #[arg(long, value_name = "K", default_value = "0", value_parser = parse::top_k, hide_short_help = true)]
    pub(crate) top_k: usize,
    /// Keep the most probable tokens up to this total probability; 1 is off
    #[arg(long, value_name = "P", default_value = "1", value_parser = parse::above_zero_to_one)]
    pub(crate) top_p: f32,
    /// Keep tokens with at least this fraction of the highest probability; 0 is off
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse::zero_to_one, hide_short_help = true)]
    pub(crate) min_p: f32,
    /// Penalty on tokens of the prompt and the output; 1 is off
    #[arg(long, value_name = "R", default_value = "1", value_parser = parse::above_zero, hide_short_help = true)]
    pub(crate) repeat_penalty: f32,
    /// Subtracted from the logits of tokens in the output; 0 is off
    #[arg(long, value_name = "A", default_value = "0", value_parser = parse::any_number, hide_short_help = true)]
    pub(crate) presence_penalty: f32,
    /// Subtracted from a token's logit for each time that it is in the output; 0 is off
    #[arg(long, value_name = "A", default_value = "0", value_parser = parse::any_number, hide_short_help = true)]
    pub(crate) frequency_penalty: f32,
    /// Add V to the logit of token ID; can be given several times
    #[arg(long, value_name = "ID=V", value_delimiter = ',', value_parser = parse::logit_bias, hide_short_help = true)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Seed; the same flags and seed give the same text, with speculation on or off
    #[arg(long, value_name = "N", value_parser = parse::seed)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spec {
    /// Prompt lookup where it matches, else the exit head, or layer skip without one, where it pays
    Auto,
    /// Plain decoding
    Off,
    /// The model's own layers up to an exit, or all but some in the middle
    LayerSkip,
    /// A small trained layer on one of the model's first layers
    ExitHead,
    /// Copies of what followed the same words earlier
    PromptLookup,
}

impl From<Spec> for RequestedDrafter {
    fn from(spec: Spec) -> Self {
        match spec {
            Spec::Auto => RequestedDrafter::Auto,
            Spec::Off => RequestedDrafter::Off,
            Spec::LayerSkip => RequestedDrafter::LayerSkip,
            Spec::ExitHead => RequestedDrafter::ExitHead,
            Spec::PromptLookup => RequestedDrafter::PromptLookup,
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(crate) struct SpeculationArgs {
    /// How tokens are drafted [default: auto, or layer-skip if layers are given]
    #[arg(long, value_enum, value_name = "DRAFTER")]
    pub(crate) spec: Option<Spec>,
    /// Draft with layers 0..L [default: half of the layers]
    #[arg(long, value_name = "L", value_parser = parse::count)]
    pub(crate) exit_layer: Option<usize>,
    /// Draft with all layers but A..B
    #[arg(long, value_name = "A..B", value_parser = parse::layers, hide_short_help = true)]
    pub(crate) skip_layers: Option<Range<usize>>,
    /// Tokens drafted a round: a number, auto for the predicted best, or window to follow recent
    /// acceptance [default: auto]
    #[arg(long, value_name = "N|auto|window", value_parser = parse::draft_len)]
    pub(crate) draft_len: Option<DraftLen>,
    /// Do not verify an extra row after the drafts
    #[arg(long, hide_short_help = true)]
    pub(crate) no_bonus: bool,
    /// Stop a draft when its best candidate is less probable than this
    #[arg(long, value_name = "P", value_parser = parse::above_zero_to_one, hide_short_help = true)]
    pub(crate) min_confidence: Option<f32>,
    /// Keep drafting where it does not pay
    #[arg(long, hide_short_help = true)]
    pub(crate) spec_always: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct RunOutputArgs {
    /// Mark accepted drafts in the text: coloured, or in brackets without colour
    #[arg(long)]
    pub(crate) show_drafts: bool,
    /// Also print speed and speculation figures after each answer of a chat
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print one JSON object instead of the text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line for each round of speculation to standard error
    #[arg(long, hide_short_help = true)]
    pub(crate) trace: bool,
}
