//! Limits of a request, of a connection and of the server. docs/serving.md has the same table; a
//! test compares them.

use std::time::Duration;

use selfspec_text::LONGEST_GRAMMAR;

/// Most choices of a request.
pub(crate) const MOST_CHOICES: u64 = 16;
/// Most stop strings.
pub(crate) const MOST_STOPS: usize = 16;
/// Most bytes of a stop string.
pub(crate) const LONGEST_STOP: usize = 1024;
/// Most tokens with a logit bias.
pub(crate) const MOST_BIASES: usize = 1024;
/// Most messages of a conversation.
pub(crate) const MOST_MESSAGES: usize = 4096;
/// Most tools of a request.
pub(crate) const MOST_TOOLS: usize = 128;
/// Most tool calls in a message or an answer.
pub(crate) const MOST_CALLS: usize = 128;
/// Largest tool, schema, regular expression or grammar, in bytes: the limit of the grammar
/// compiler.
pub(crate) const LARGEST_SCHEMA: usize = LONGEST_GRAMMAR;
/// Deepest nesting of a tool or a schema.
pub(crate) const SCHEMA_DEPTH: usize = 50;
/// Most alternatives beside a token's log-probability.
pub(crate) const MOST_TOP: u64 = 20;
/// Deepest nesting of a body's JSON.
pub(crate) const DEPTH: usize = 64;

/// Largest body, in bytes, by default.
pub(crate) const BODY: usize = 8 << 20;
/// Most bytes of all bodies that are being received.
pub(crate) const BODIES: usize = 256 << 20;
/// Most bytes of a request line and headers.
pub(crate) const HEADER_BYTES: usize = 32 << 10;
/// Most headers.
pub(crate) const MOST_HEADERS: usize = 100;
/// Time limit for headers, counted from the connection's opening or its last answer; and for the
/// body after them.
pub(crate) const READ_TIME: Duration = Duration::from_secs(30);
/// Bytes that a connection may read ahead or have ready to send.
pub(crate) const BUFFER: usize = 64 << 10;
/// Bytes that the system may buffer for a connection to send.
pub(crate) const SEND_BUFFER: usize = 256 << 10;

/// Most connections at a time, by default.
pub(crate) const CONNECTIONS: usize = 1024;
/// Most queued and running choices at a time, by default.
pub(crate) const REQUESTS: usize = 128;
/// Most prompt tokens of all queued and running choices, by default.
pub(crate) const TOKENS: usize = 256 << 10;
/// Unread events of a request, which a round may exceed by a few. With more the request pauses.
pub(crate) const UNREAD_EVENTS: usize = 256;
/// Time limit for a client that reads nothing.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(60);
/// Time after which a silent stream gets a comment or a ping.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time that running requests have to end when the server stops.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_same_numbers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serving.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
        let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
        let seconds = |time: Duration| format!("{} s", time.as_secs());
        let rows = [
            ("`n`", MOST_CHOICES.to_string()),
            ("`stop`: strings", MOST_STOPS.to_string()),
            ("`stop`: bytes of a string", LONGEST_STOP.to_string()),
            ("`logit_bias`: tokens", MOST_BIASES.to_string()),
            ("`messages`", MOST_MESSAGES.to_string()),
            ("`tools`", MOST_TOOLS.to_string()),
            ("tool calls in a message", MOST_CALLS.to_string()),
            ("a tool, schema, regular expression or grammar", kib(LARGEST_SCHEMA)),
            ("nesting of a tool or schema", SCHEMA_DEPTH.to_string()),
            ("`top_logprobs`, `logprobs` of completions", MOST_TOP.to_string()),
            ("nesting of the JSON", DEPTH.to_string()),
            ("body", mib(BODY)),
            ("all bodies being received", mib(BODIES)),
            ("request line and headers", kib(HEADER_BYTES)),
            ("number of headers", MOST_HEADERS.to_string()),
            ("time to receive the headers, and the body", seconds(READ_TIME)),
            ("connections", CONNECTIONS.to_string()),
            ("queued and running requests", REQUESTS.to_string()),
            ("prompt tokens of these requests", TOKENS.to_string()),
            ("unread events of a request", UNREAD_EVENTS.to_string()),
            ("time in which a client reads nothing", seconds(STALL_TIME)),
            ("time after which a silent stream gets a comment or a ping", seconds(KEEP_ALIVE)),
            ("time for running requests when the server stops", seconds(DRAIN_TIME)),
        ];
        for (name, value) in rows {
            let row = format!("| {name} | {value} |");
            assert!(page.contains(&row), "docs/serving.md has no row that begins with {row}");
        }
    }
}
