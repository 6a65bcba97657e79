//! What a request, a connection and the server as a whole may come to. docs/serving.md has the same table; a test compares them.

use std::time::Duration;

use selfspec_text::LONGEST_GRAMMAR;

/// Most answers to a request.
pub(crate) const MOST_CHOICES: u64 = 16;
/// Most stop strings.
pub(crate) const MOST_STOPS: usize = 16;
/// Most bytes of one of them.
pub(crate) const LONGEST_STOP: usize = 1024;
/// Most biases.
pub(crate) const MOST_BIASES: usize = 1024;
/// Most messages of a conversation.
pub(crate) const MOST_MESSAGES: usize = 4096;
/// Most functions that a request offers.
pub(crate) const MOST_TOOLS: usize = 128;
/// Most calls of functions in a message or an answer.
pub(crate) const MOST_CALLS: usize = 128;
/// Largest function, schema, expression or grammar, in bytes: what the compiler of grammars takes.
pub(crate) const LARGEST_SCHEMA: usize = LONGEST_GRAMMAR;
/// Deepest nesting of a function or a schema.
pub(crate) const SCHEMA_DEPTH: usize = 50;
/// Most alternatives with a token's log-probability.
pub(crate) const MOST_TOP: u64 = 20;
/// Deepest nesting of a body's JSON.
pub(crate) const DEPTH: usize = 64;

/// Largest body, in bytes, unless the options say otherwise.
pub(crate) const BODY: usize = 8 << 20;
/// Most bytes of all bodies that are on their way.
pub(crate) const BODIES: usize = 256 << 20;
/// Most bytes of a request's first line and headers.
pub(crate) const HEADER_BYTES: usize = 32 << 10;
/// Most headers.
pub(crate) const MOST_HEADERS: usize = 100;
/// How long headers may take to come, counted from the connection's opening or its last answer; and a body after them.
pub(crate) const READ_TIME: Duration = Duration::from_secs(30);
/// Bytes that a connection may read ahead or have ready to send.
pub(crate) const BUFFER: usize = 64 << 10;
/// Bytes that the system may hold for a connection to send.
pub(crate) const SEND_BUFFER: usize = 256 << 10;

/// Most connections at a time, unless the options say otherwise.
pub(crate) const CONNECTIONS: usize = 1024;
/// Most requests that are taken on at a time.
pub(crate) const REQUESTS: usize = 128;
/// Most prompt tokens of all of them.
pub(crate) const TOKENS: usize = 256 << 10;
/// Events of a request that wait for its client to read; a round may add a few. With more of them the request rests.
pub(crate) const EVENTS: usize = 256;
/// How long a client may take none of what is sent to it.
pub(crate) const STALL_TIME: Duration = Duration::from_secs(60);
/// How long requests under way have to end when the server stops.
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
            ("calls of functions in a message", MOST_CALLS.to_string()),
            ("a function, schema, expression or grammar", kib(LARGEST_SCHEMA)),
            ("nesting of a function or schema", SCHEMA_DEPTH.to_string()),
            ("`top_logprobs`, `logprobs` of completions", MOST_TOP.to_string()),
            ("nesting of the JSON", DEPTH.to_string()),
            ("body", mib(BODY)),
            ("all bodies on their way", mib(BODIES)),
            ("first line and headers", kib(HEADER_BYTES)),
            ("number of headers", MOST_HEADERS.to_string()),
            ("time for the headers to come, and for the body", seconds(READ_TIME)),
            ("connections", CONNECTIONS.to_string()),
            ("requests under way", REQUESTS.to_string()),
            ("prompt tokens under way", TOKENS.to_string()),
            ("events that wait for a client to read", EVENTS.to_string()),
            ("time in which a client takes nothing", seconds(STALL_TIME)),
            ("time to end at a stop", seconds(DRAIN_TIME)),
        ];
        for (name, value) in rows {
            let row = format!("| {name} | {value} |");
            assert!(page.contains(&row), "docs/serving.md has no row that begins with {row}");
        }
    }
}
