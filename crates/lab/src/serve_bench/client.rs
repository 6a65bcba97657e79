//! The HTTP client of a load: one streamed request at a time on a thread, read as it arrives.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::answer::{AnswerReader, StreamedAnswer};
use super::failure::{LoadFailure, message_of_body};
use super::options::{CompletionEndpoint, ServerTarget};
use crate::http::{CONNECT_S, SseDecoder, agent_config, bearer};

/// Most bytes of a refusal that are read.
const REFUSAL: u64 = 64 << 10;
/// Most bytes of a list of models.
const MODELS: u64 = 4 << 20;

/// A client of a server.
#[derive(Debug)]
pub(super) struct LoadClient {
    agent: Agent,
    base: String,
    path: &'static str,
    key: Option<String>,
    timeout: u64, // seconds
    count_chunks: bool,
}

impl LoadClient {
    /// A client for `at_a_time` requests at a time.
    pub(super) fn new(target: &ServerTarget, at_a_time: usize) -> Self {
        let timeout = target.timeout_s;
        let config = agent_config()
            .accept_encoding("identity") // a compressor holds chunks back
            .max_idle_connections(at_a_time)
            .max_idle_connections_per_host(at_a_time)
            .timeout_connect(Some(Duration::from_secs(CONNECT_S.min(timeout))))
            .timeout_global(Some(Duration::from_secs(timeout)));
        let path = match target.endpoint {
            CompletionEndpoint::Chat => "/v1/chat/completions",
            CompletionEndpoint::Completions => "/v1/completions",
        };
        let (base, key) = (target.url.clone(), target.api_key.clone());
        LoadClient { agent: config.build().new_agent(), base, path, key, timeout, count_chunks: target.count_chunks }
    }

    /// The first model that the server lists.
    ///
    /// # Errors
    /// There is no list, or it is empty.
    pub(super) fn first_model(&self) -> Result<String, LoadFailure> {
        let mut request = self.agent.get(format!("{}/v1/models", self.base));
        if let Some(key) = &self.key {
            request = request.header("Authorization", bearer(key));
        }
        let mut response = succeeded(request.call().map_err(|e| self.failed(&e))?)?;
        let body = response.body_mut().with_config().limit(MODELS).read_to_string().map_err(|e| self.failed(&e))?;
        let list: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let first = list.pointer("/data/0/id").and_then(Value::as_str);
        let none = || LoadFailure::NoModel { url: format!("{}/v1/models", self.base) };
        first.map(str::to_owned).ok_or_else(none)
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Errors
    /// The answer is not whole.
    pub(super) fn send(&self, body: &[u8]) -> Result<StreamedAnswer, LoadFailure> {
        let mut request = self.agent.post(format!("{}{}", self.base, self.path));
        request = request.header("Content-Type", "application/json").header("Accept", "text/event-stream");
        if let Some(key) = &self.key {
            request = request.header("Authorization", bearer(key));
        }
        let sent = Instant::now();
        let response = succeeded(request.send(body).map_err(|e| self.failed(&e))?)?;
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("without a type");
        if !kind.starts_with("text/event-stream") {
            return Err(LoadFailure::NoStream { kind: kind.to_owned() });
        }
        let mut body = response.into_body().into_reader();
        let mut bytes = vec![0; 16 << 10];
        let (mut events, mut reader) = (SseDecoder::default(), AnswerReader::default());
        let (mut end_s, mut done) = (0.0, false);
        loop {
            let n = match body.read(&mut bytes) {
                Ok(n) => n,
                Err(_) if done => 0, // the answer is whole
                Err(error) => return Err(self.broken(&error, reader.chunks())),
            };
            if n == 0 {
                return reader.finish(end_s, done, self.count_chunks);
            }
            let at_s = sent.elapsed().as_secs_f64();
            for data in events.push(&bytes[..n]).map_err(|why| LoadFailure::NoEvents { why })? {
                if done {
                    continue;
                }
                end_s = at_s;
                done = data.trim() == "[DONE]";
                if !done {
                    reader.add_event(&data, at_s)?;
                }
            }
        }
    }

    /// Why there was no answer.
    fn failed(&self, error: &ureq::Error) -> LoadFailure {
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => LoadFailure::Connect {
                url: self.base.clone(),
                why: format!("no answer within {} s", CONNECT_S.min(self.timeout)),
            },
            ureq::Error::Timeout(_) => LoadFailure::Late { seconds: self.timeout },
            ureq::Error::Io(error) if error.kind() == ErrorKind::TimedOut => {
                LoadFailure::Late { seconds: self.timeout }
            }
            ureq::Error::Io(error) if cut(error.kind()) => LoadFailure::NoAnswer { why: error.to_string() },
            ureq::Error::Protocol(error) => LoadFailure::NoAnswer { why: error.to_string() },
            other => LoadFailure::Connect { url: self.base.clone(), why: other.to_string() },
        }
    }

    /// Why an answer broke off.
    fn broken(&self, error: &std::io::Error, chunks: usize) -> LoadFailure {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
        if error.kind() == ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_))) {
            return LoadFailure::Late { seconds: self.timeout };
        }
        LoadFailure::Broken { chunks, why: error.to_string() }
    }
}

/// Whether an established connection ended.
fn cut(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

/// The response, unless it is a refusal.
fn succeeded(mut response: Response<Body>) -> Result<Response<Body>, LoadFailure> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(REFUSAL).read_to_string().unwrap_or_default();
    Err(LoadFailure::Status { status: status.as_u16(), message: message_of_body(&body) })
}
