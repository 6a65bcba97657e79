//! The HTTP client of a load: one streamed request at a time on a thread, read as it arrives.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::answer::{Answer, Reading};
use super::failure::{Failure, message_of_body};
use super::sse::Events;
use crate::args::{Endpoint, TargetArgs};

/// Most seconds until a connection stands.
const CONNECT: u64 = 10;
/// Most bytes of a refusal that are read.
const REFUSAL: u64 = 64 << 10;
/// Most bytes of a list of models.
const MODELS: u64 = 4 << 20;

/// A server, and how it is asked.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    base: String,
    path: &'static str,
    key: Option<String>,
    timeout: u64, // seconds
    count_chunks: bool,
}

impl Client {
    /// A client for so many requests at a time.
    pub(super) fn new(target: &TargetArgs, at_a_time: usize) -> Self {
        let timeout = target.timeout as u64;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0) // a redirected request would be measured twice
            .proxy(None) // what is in between would be measured too
            .accept_encoding("identity") // a compressor holds chunks back
            .user_agent(concat!("selfspec/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections(at_a_time)
            .max_idle_connections_per_host(at_a_time)
            .timeout_connect(Some(Duration::from_secs(CONNECT.min(timeout))))
            .timeout_global(Some(Duration::from_secs(timeout)));
        let path = match target.endpoint {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
        };
        let (base, key) = (target.url.clone(), target.api_key.clone());
        Client { agent: config.build().new_agent(), base, path, key, timeout, count_chunks: target.count_chunks }
    }

    /// The first model that the server lists.
    ///
    /// # Errors
    /// There is no list, or nothing in it.
    pub(super) fn first_model(&self) -> Result<String, Failure> {
        let mut request = self.agent.get(format!("{}/v1/models", self.base));
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = succeeded(request.call().map_err(|e| self.failed(&e))?)?;
        let body = response.body_mut().with_config().limit(MODELS).read_to_string().map_err(|e| self.failed(&e))?;
        let list: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let first = list.pointer("/data/0/id").and_then(Value::as_str);
        let none = || Failure::NoModel { url: format!("{}/v1/models", self.base) };
        first.map(str::to_owned).ok_or_else(none)
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Errors
    /// The answer is not whole.
    pub(super) fn ask(&self, body: &[u8]) -> Result<Answer, Failure> {
        let mut request = self.agent.post(format!("{}{}", self.base, self.path));
        request = request.header("Content-Type", "application/json").header("Accept", "text/event-stream");
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let sent = Instant::now();
        let response = succeeded(request.send(body).map_err(|e| self.failed(&e))?)?;
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("without a type");
        if !kind.starts_with("text/event-stream") {
            return Err(Failure::NoStream { kind: kind.to_owned() });
        }
        let mut reader = response.into_body().into_reader();
        let mut bytes = vec![0; 16 << 10];
        let (mut events, mut reading) = (Events::default(), Reading::default());
        let (mut end_s, mut done) = (0.0, false);
        loop {
            let n = match reader.read(&mut bytes) {
                Ok(n) => n,
                Err(_) if done => 0, // the answer is whole
                Err(error) => return Err(self.broken(&error, reading.chunks())),
            };
            if n == 0 {
                return reading.end(end_s, done, self.count_chunks);
            }
            let at_s = sent.elapsed().as_secs_f64();
            for data in events.push(&bytes[..n]).map_err(|why| Failure::NoEvents { why })? {
                if done {
                    continue;
                }
                end_s = at_s;
                done = data.trim() == "[DONE]";
                if !done {
                    reading.take(&data, at_s)?;
                }
            }
        }
    }

    /// Why there was no answer at all.
    fn failed(&self, error: &ureq::Error) -> Failure {
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => Failure::Connect {
                url: self.base.clone(),
                why: format!("no answer within {} s", CONNECT.min(self.timeout)),
            },
            ureq::Error::Timeout(_) => Failure::Late { seconds: self.timeout },
            ureq::Error::Io(error) if error.kind() == ErrorKind::TimedOut => Failure::Late { seconds: self.timeout },
            ureq::Error::Io(error) if cut(error.kind()) => Failure::NoAnswer { why: error.to_string() },
            ureq::Error::Protocol(error) => Failure::NoAnswer { why: error.to_string() },
            other => Failure::Connect { url: self.base.clone(), why: other.to_string() },
        }
    }

    /// Why an answer ended in its middle.
    fn broken(&self, error: &std::io::Error, chunks: usize) -> Failure {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
        if error.kind() == ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_))) {
            return Failure::Late { seconds: self.timeout };
        }
        Failure::Broken { chunks, why: error.to_string() }
    }
}

/// Whether a connection ended that had stood.
fn cut(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

/// The response, if it is none of an error.
fn succeeded(mut response: Response<Body>) -> Result<Response<Body>, Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(REFUSAL).read_to_string().unwrap_or_default();
    Err(Failure::Status { status: status.as_u16(), message: message_of_body(&body) })
}
