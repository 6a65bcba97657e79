//! Why a request failed.

use serde_json::Value;

/// Most characters of a server's message that are shown.
const SHOWN: usize = 300;

/// Why a request has no whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LoadFailure {
    /// No connection to the server.
    #[error("cannot connect to {url}: {why}")]
    Connect {
        /// Base of the server.
        url: String,
        /// What the system said.
        why: String,
    },
    /// The server refused the request.
    #[error("the server answers {status}: {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The server's list of models is empty.
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
    /// The request took too long.
    #[error("no whole answer within {seconds} s")]
    Late {
        /// The limit in seconds.
        seconds: u64,
    },
    /// An answer that is not streamed.
    #[error("the answer is no event stream but {kind}")]
    NoStream {
        /// Its Content-Type.
        kind: String,
    },
    /// The stream has no readable events.
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
    ServerError {
        /// The server's message.
        message: String,
    },
    /// The server sends no counts of tokens.
    #[error("the stream tells no token counts: the server does not know stream_options.include_usage")]
    NoUsage,
}

/// Why a load has no result.
#[derive(Debug, thiserror::Error)]
pub enum ServeBenchError {
    /// There are no prompts to send.
    #[error("there are no prompts")]
    NoPrompts,
    /// A request failed before anything was measured.
    #[error(transparent)]
    Request(#[from] LoadFailure),
    /// The system gives no more threads.
    #[error("cannot start a thread for request {request}: {source}")]
    Thread {
        /// The request, from 1.
        request: usize,
        /// What the system said.
        source: std::io::Error,
    },
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
