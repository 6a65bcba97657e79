//! Why a request failed, in words that name the remedy where there is one.

use serde_json::Value;

/// Most characters of a server's message that are shown.
const SHOWN: usize = 300;

/// A request without a whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub(super) enum Failure {
    /// Nobody listens, or the way there is barred.
    #[error("cannot connect to {url}: {why}")]
    Connect {
        /// Base of the server.
        url: String,
        /// What the system said.
        why: String,
    },
    /// An answer that is none.
    #[error("the server answers {status}: {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// What the server said.
        message: String,
    },
    /// A list of models without one.
    #[error("{url} lists no model")]
    NoModel {
        /// Address of the list.
        url: String,
    },
    /// The connection ended before an answer began.
    #[error("the server gives no answer of HTTP: {why}")]
    NoAnswer {
        /// What the system said.
        why: String,
    },
    /// The time was over.
    #[error("no whole answer within {seconds} s")]
    Late {
        /// Of `--timeout`.
        seconds: u64,
    },
    /// An answer that is not streamed.
    #[error("the answer is no event stream but {kind}")]
    NoStream {
        /// Its Content-Type.
        kind: String,
    },
    /// The stream is not one of events.
    #[error("the stream cannot be read: {why}")]
    NoEvents {
        /// What is wrong.
        why: String,
    },
    /// An event that is no chunk.
    #[error("the stream has a chunk that is not JSON: {why}")]
    NoChunk {
        /// What the parser said.
        why: String,
    },
    /// The stream ended too early.
    #[error("the stream broke off after {chunks} chunk{}: {why}", if *chunks == 1 { "" } else { "s" })]
    Broken {
        /// Chunks with text before.
        chunks: usize,
        /// How it ended.
        why: String,
    },
    /// The server ended the stream with an error.
    #[error("the server gave up: {message}")]
    Told {
        /// What it said.
        message: String,
    },
    /// Nobody knows how many tokens there were.
    #[error("the stream tells no token counts: the server does not know stream_options.include_usage")]
    NoUsage,
}

impl Failure {
    /// What can be done about it.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Failure::Connect { .. } => Some("is the server up? --url says where it is: http://HOST:PORT"),
            Failure::Status { status: 401 | 403, .. } => Some("--api-key gives the key that the server asks for"),
            Failure::Status { status: 404, .. } => {
                Some("--model NAME has to be one that the server lists at /v1/models, and --url the part before /v1")
            }
            Failure::Status { status: 429, .. } => {
                Some("the server takes on no more at a time: a smaller --concurrency")
            }
            Failure::NoModel { .. } => Some("--model NAME names it"),
            Failure::NoUsage => Some("--count-chunks takes each chunk for one token"),
            Failure::Late { .. } => Some("--timeout gives a request more time"),
            _ => None,
        }
    }
}

/// The message in an error object, as OpenAI's API and others have it.
pub(super) fn message(error: &Value) -> String {
    let text = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
    short(&text.map_or_else(|| error.to_string(), str::to_owned))
}

/// The message in the body of a refusal.
pub(super) fn message_of_body(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(value) => message(value.get("error").or_else(|| value.get("detail")).unwrap_or(&value)),
        Err(_) if body.trim().is_empty() => "nothing".to_owned(),
        Err(_) => short(body.trim()),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_where_servers_put_them() {
        assert_eq!(message_of_body(r#"{"error": {"message": "a", "code": 1}}"#), "a");
        assert_eq!(message_of_body(r#"{"error": "b"}"#), "b");
        assert_eq!(message_of_body(r#"{"message": "c"}"#), "c");
        assert_eq!(message_of_body(r#"{"detail": "d"}"#), "d");
        assert_eq!((message_of_body(" e\n"), message_of_body("")), ("e".to_owned(), "nothing".to_owned()));
        assert_eq!(message_of_body(&"ü".repeat(1000)).chars().count(), SHOWN + 3);
    }
}
