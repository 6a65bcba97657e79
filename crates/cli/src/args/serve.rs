//! The flags of `selfspec serve`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::model::{ComputeArgs, ModelArg};
use super::parse;
use super::parse::ToolStyleArg;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessArgs {
    /// Address to listen on; 0.0.0.0 lets other machines in
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value = "8080")]
    pub(crate) port: u16,
    /// Key that requests must send (Authorization: Bearer KEY, or X-Api-Key); can be given several
    /// times [default: no key is needed]
    #[arg(long, value_name = "KEY", value_parser = parse::not_empty, hide_env_values = true)]
    pub(crate) api_key: Vec<String>,
    /// File of keys, one on each line; text after a # is a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Origin whose pages may use the server from a browser, such as https://example.org, or * for
    /// all; can be given several times [default: none]
    #[arg(long, value_name = "ORIGIN", value_parser = parse::not_empty)]
    pub(crate) cors_origin: Vec<String>,
    /// Name of the model in the API [default: MODEL, or the last part of its path]
    #[arg(long, value_name = "NAME", value_parser = parse::not_empty)]
    pub(crate) model_name: Option<String>,
    /// How the model writes tool calls: llama3, hermes or json; auto reads it from the chat
    /// template
    #[arg(long, value_name = "STYLE", default_value = "auto", value_parser = parse::tool_style)]
    pub(crate) tool_style: ToolStyleArg,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Most sequences in a step; others wait
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse::count)]
    pub(crate) max_batch: usize,
    /// Most requests, running and queued; others are answered 429
    #[arg(long, value_name = "N", default_value = "128", value_parser = parse::count)]
    pub(crate) max_requests: usize,
    /// Most connections at a time; others wait
    #[arg(long, value_name = "N", default_value = "1024", value_parser = parse::count)]
    pub(crate) max_connections: usize,
    /// Time limit of a request, queued and running; it then ends with an error [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub(crate) request_timeout: Option<Duration>,
    /// Time after which a client that reads nothing of its answer loses its connection
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse::seconds)]
    pub(crate) stall_timeout: Duration,
    /// Longest sequence, in positions [default: the model's own]
    #[arg(short = 'c', long, alias = "ctx-size", value_name = "N", value_parser = parse::count)]
    pub(crate) context: Option<usize>,
    /// Free a request's KV cache at its end, instead of keeping it for requests with a common
    /// prefix
    #[arg(long)]
    pub(crate) no_prefix_cache: bool,
    /// Memory for the KV cache, in MiB [default: room for one sequence of the whole context and
    /// several short ones]
    #[arg(long, value_name = "MIB", value_parser = parse::count)]
    pub(crate) kv_mib: Option<usize>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Roll-out and record")]
pub(crate) struct WatchArgs {
    /// Share of the requests that draft, by their ids (X-Request-Id), among those that do not set
    /// `speculation`; `selfspec ab` compares both arms [default: all]
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    pub(crate) speculate_share: Option<f64>,
    /// Append a line of JSON to this file for each finished request: times, tokens, drafts, no
    /// texts
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Also record requests' bodies and answers' texts, for `selfspec replay`
    #[arg(long)]
    pub(crate) record_prompts: bool,
}
