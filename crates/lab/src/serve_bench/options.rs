//! The server, and the load that is put on it.

/// A server of OpenAI's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTarget {
    /// Its address without `/v1`: `http://HOST:PORT`.
    pub url: String,
    /// The path that requests are sent to.
    pub endpoint: CompletionEndpoint,
    /// Name of the model; none: the first that the server lists.
    pub model: Option<String>,
    /// The key that the requests carry.
    pub api_key: Option<String>,
    /// Whether each chunk is taken for one token if the server's streams have no counts.
    pub count_chunks: bool,
    /// Whether to ask for `timings_per_token`, a count of tokens with each chunk. Implied by a
    /// field of speculation.
    pub timings_per_token: bool,
    /// Seconds after which a request has failed.
    pub timeout_s: u64,
}

/// A path of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionEndpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl CompletionEndpoint {
    /// `chat` or `completions`.
    pub fn name(self) -> &'static str {
        match self {
            CompletionEndpoint::Chat => "chat",
            CompletionEndpoint::Completions => "completions",
        }
    }
}

/// The field `speculation` of a request, which this program's server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedSpeculation {
    /// The server's default.
    Auto,
    /// Plain decoding.
    Off,
}

impl RequestedSpeculation {
    /// The word that is sent: `auto` or `off`.
    pub fn name(self) -> &'static str {
        match self {
            RequestedSpeculation::Auto => "auto",
            RequestedSpeculation::Off => "off",
        }
    }
}

/// The load that is put on a server.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// Requests of a run, which take the prompts in turn; none: one for each prompt.
    pub requests: Option<usize>,
    /// Most requests at a time, a setting each; empty: 1, or no limit if requests arrive at a rate.
    pub concurrency: Vec<usize>,
    /// Requests a second, which arrive as in a Poisson process; infinite: each as soon as the
    /// concurrency allows.
    pub request_rate: f64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Runs of each setting, which take turns; medians count.
    pub repetitions: usize,
    /// Requests of one token before anything is measured; none: 1, or one for each prompt if runs
    /// are compared.
    pub warmup: Option<usize>,
    /// The field `speculation` of every request; none: it is not sent. `compare_speculation`
    /// overrides it.
    pub speculation: Option<RequestedSpeculation>,
    /// Whether each setting runs with speculation and without, in turn.
    pub compare_speculation: bool,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Temperature of every request.
    pub temperature: f32,
    /// Seed that every request carries.
    pub sampling_seed: Option<u64>,
    /// Whether to ask for all of `max_tokens`, past the end of the text.
    pub ignore_eos: bool,
}
