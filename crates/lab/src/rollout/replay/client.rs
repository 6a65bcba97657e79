//! The HTTP client that sends recorded requests to a server.

use std::io::Read;
use std::time::Duration;

use serde_json::Value;

use super::answer::ReplayAnswer;
use super::error::ReplayError;
use crate::http::{CONNECT_S, agent_config, bearer};

/// Largest answer, in bytes.
const LARGEST: u64 = 256 << 20;

/// A server that a record is replayed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayTarget {
    /// Its address, which may end with the API's `/v1`.
    pub url: String,
    /// The key that the requests carry.
    pub api_key: Option<String>,
}

impl ReplayTarget {
    /// The address without the API's `/v1`.
    pub fn base(&self) -> &str {
        let base = self.url.trim_end_matches('/');
        base.strip_suffix("/v1").unwrap_or(base)
    }
}

/// A client of the server.
#[derive(Debug)]
pub(super) struct ReplayClient {
    agent: ureq::Agent,
    base: String,
    key: Option<String>,
}

impl ReplayClient {
    /// # Errors
    /// The target is not the address of a server.
    pub(super) fn new(target: &ReplayTarget) -> Result<Self, ReplayError> {
        let base = target.base();
        let uri: Result<ureq::http::Uri, _> = base.parse();
        let known = |uri: &ureq::http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        if !uri.as_ref().is_ok_and(known) {
            return Err(ReplayError::Url { url: target.url.clone() });
        }
        let config = agent_config().timeout_connect(Some(Duration::from_secs(CONNECT_S)));
        Ok(ReplayClient { agent: config.build().into(), base: base.to_owned(), key: target.api_key.clone() })
    }

    /// Sends a request under its id, and reads the answer to its end.
    ///
    /// # Errors
    /// Why there is no whole answer.
    pub(super) fn send(&self, path: &str, id: &str, body: &Value) -> Result<ReplayAnswer, String> {
        let mut request = self.agent.post(format!("{}{path}", self.base)).header("Content-Type", "application/json");
        // A server that gave a request no id recorded an empty one.
        if !id.is_empty() {
            request = request.header("X-Request-Id", id);
        }
        if let Some(key) = &self.key {
            request = request.header("Authorization", bearer(key));
        }
        let response = request.send(body.to_string()).map_err(|e| e.to_string())?;
        let status = response.status();
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streamed = kind.starts_with("text/event-stream");
        let mut text = String::new();
        let reader = response.into_body().into_reader().take(LARGEST);
        let read = std::io::BufReader::new(reader).read_to_string(&mut text);
        read.map_err(|e| format!("the answer broke off: {e}"))?;
        if !status.is_success() {
            return Err(refusal(status.as_u16(), &text));
        }
        if streamed { ReplayAnswer::of_stream(&text) } else { ReplayAnswer::of_object(&text) }
    }
}

/// The server's message in a refusal.
fn refusal(status: u16, text: &str) -> String {
    let object: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    match object["error"]["message"].as_str() {
        Some(message) => format!("{status}: {message}"),
        None => format!("{status}: {}", text.chars().take(200).collect::<String>()),
    }
}
