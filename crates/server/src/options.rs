//! How a server is set up.

use std::net::SocketAddr;
use std::time::Duration;

use selfspec_text::ToolStyle;

use crate::http::limits;
use crate::observe::record::RecordOptions;

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on.
    pub addr: SocketAddr,
    /// Name of the model in the API.
    pub model_id: String,
    /// How the model writes tool calls; `None`: as its chat template shows them.
    pub tool_style: Option<ToolStyle>,
    /// API keys. A request must carry one of them; with an empty list no request needs a key.
    pub api_keys: Vec<String>,
    /// Most queued and running choices at a time; beyond it requests are answered 429.
    pub most_requests: usize,
    /// Most prompt tokens of all queued and running choices.
    pub most_tokens: usize,
    /// Most connections at a time; further ones wait to be accepted.
    pub most_connections: usize,
    /// Largest body, in bytes.
    pub body_limit: usize,
    /// Time limit for receiving headers, and for receiving a body. An idle connection is closed
    /// after the same time.
    pub read_timeout: Duration,
    /// Time limit for a client that reads nothing of what is sent to it. After it the connection is
    /// closed and the request is cancelled.
    pub stall_timeout: Duration,
    /// Time limit of a request, in the queue and running. A request that is still queued is
    /// answered 503 with Retry-After. A running one is answered 504 without its partial text,
    /// because no finish reason that clients know describes it. In a stream, whose status has been
    /// sent, the same error is the last event before `[DONE]`. `None`: no limit.
    pub request_timeout: Option<Duration>,
    /// Origins whose pages may use the server from a browser, `*` for all; with an empty list only
    /// the server's own page may.
    pub cors_origins: Vec<String>,
    /// Time that running requests have to end when the server stops.
    pub drain: Duration,
    /// Time after which a stream in which nothing comes gets a comment or a ping, so that nobody on
    /// its way closes it.
    pub keep_alive: Duration,
    /// Share of requests that draft, from 0 to 1, among those without a `speculation` field;
    /// `None`: all requests follow the model's tuning.
    pub speculate_share: Option<f64>,
    /// Where finished requests are recorded, if they are.
    pub record: Option<RecordOptions>,
}

impl ServeOptions {
    /// The default options for a model of this name.
    pub fn new(addr: SocketAddr, model_id: impl Into<String>) -> Self {
        ServeOptions {
            addr,
            model_id: model_id.into(),
            tool_style: None,
            api_keys: Vec::new(),
            most_requests: limits::REQUESTS,
            most_tokens: limits::TOKENS,
            most_connections: limits::CONNECTIONS,
            body_limit: limits::BODY,
            read_timeout: limits::READ_TIME,
            stall_timeout: limits::STALL_TIME,
            request_timeout: None,
            cors_origins: Vec::new(),
            drain: limits::DRAIN_TIME,
            keep_alive: limits::KEEP_ALIVE,
            speculate_share: None,
            record: None,
        }
    }
}
