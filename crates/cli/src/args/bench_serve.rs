//! The flags of `selfspec bench serve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::headings::{OUTPUT, SAMPLING};
use super::parse;

/// What the figures are of.
pub(super) const FIGURES: &str = "Every request is streamed, and its chunks are timed as they arrive. Tokens are counted by the server (usage), not by chunks, of which one can \
bring several. ITL, the time of a token after the first chunk: where the server tells how many tokens a chunk brings (--timings-per-token, a running usage, logprobs, token ids), the gap before the chunk is shared out among \
them, else the gap counts as it is; `tokens a chunk` says how far that is from a token's.";

#[derive(Debug, Args)]
pub(crate) struct BenchServeArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
    #[command(flatten)]
    pub(crate) output: BenchServeOutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Endpoint {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServedSpeculation {
    /// The server's default
    Auto,
    /// Plain decoding
    Off,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct TargetArgs {
    /// Address of the server, without /v1
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = parse::url)]
    pub(crate) url: String,
    /// Endpoint to use
    #[arg(long, value_enum, value_name = "PATH", default_value = "chat")]
    pub(crate) endpoint: Endpoint,
    /// Name of the model; its variable is SELFSPEC_MODEL_NAME [default: the first that the server
    /// lists]
    #[arg(long, env = "SELFSPEC_MODEL_NAME", value_name = "NAME", value_parser = parse::not_empty)]
    pub(crate) model: Option<String>,
    /// API key to send
    #[arg(long, value_name = "KEY", value_parser = parse::not_empty, hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Count each chunk as one token if the server reports no counts; without this flag such
    /// requests fail
    #[arg(long)]
    pub(crate) count_chunks: bool,
    /// Request `timings_per_token`, the number of tokens in each chunk, which this server and
    /// llama-server support; the speculation flags imply it
    #[arg(long)]
    pub(crate) timings_per_token: bool,
    /// Seconds after which a request fails
    #[arg(long, value_name = "S", value_parser = parse::count, default_value = "600")]
    pub(crate) timeout: usize,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct TrafficArgs {
    /// Prompts: JSONL lines with `prompt`, `messages` or `turns` [default: a small built-in set]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Use only the first N prompts
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) limit: Option<usize>,
    /// Requests of a run; they use the prompts in turn [default: one for each prompt]
    #[arg(long, value_name = "N", value_parser = parse::count)]
    pub(crate) requests: Option<usize>,
    /// Most requests at a time; each number is a separate run [default: 1, or no limit with
    /// --request-rate]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse::threads)]
    pub(crate) concurrency: Vec<usize>,
    /// Requests a second, with Poisson arrivals; inf sends each as soon as --concurrency allows
    #[arg(long, value_name = "R|inf", value_parser = parse::request_rate, default_value = "inf")]
    pub(crate) request_rate: f64,
    /// Seed of the arrival times
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse::seed)]
    pub(crate) seed: u64,
    /// Runs of each setting, interleaved; results are medians
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = parse::count)]
    pub(crate) repetitions: usize,
    /// Warm-up requests of one token [default: 1; one for each prompt where runs are compared]
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<usize>,
    /// Send `speculation`: auto or off, a field that this server knows [default: the field is not
    /// sent]
    #[arg(long, value_enum, value_name = "auto|off")]
    pub(crate) speculation: Option<ServedSpeculation>,
    /// Run each setting with and without speculation, interleaved, and print the ratio
    #[arg(long)]
    pub(crate) compare_speculation: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SAMPLING)]
pub(crate) struct AnswerArgs {
    /// Most tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = parse::count)]
    pub(crate) max_tokens: usize,
    /// Temperature; 0 always takes the most probable token
    #[arg(long, value_name = "T", default_value = "0", value_parser = parse::temperature)]
    pub(crate) temperature: f32,
    /// Seed to send with every request [default: none]
    #[arg(long, value_name = "N", value_parser = parse::seed)]
    pub(crate) sampling_seed: Option<u64>,
    /// Generate all of --max-tokens, past the end of the text: sends `ignore_eos`, which not every
    /// server supports
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct BenchServeOutputArgs {
    /// Also write all figures, and those of every request, to this file; its variable is
    /// SELFSPEC_JSON_FILE
    #[arg(long = "json", env = "SELFSPEC_JSON_FILE", value_name = "FILE")]
    pub(crate) json_file: Option<PathBuf>,
}
