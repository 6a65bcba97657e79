//! Reads the record of a server: a JSON object a line for each request that has ended.
//!
//! The server writes it; these are its fields for a reader.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a request was decoded: its arm of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedArm {
    /// Without drafts.
    Plain,
    /// With drafts, where they pay.
    Speculation,
}

impl RecordedArm {
    /// Both, plain first.
    pub const ALL: [RecordedArm; 2] = [RecordedArm::Plain, RecordedArm::Speculation];
}

impl fmt::Display for RecordedArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordedArm::Plain => "plain",
            RecordedArm::Speculation => "speculation",
        })
    }
}

/// What chose a request's arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArmSource {
    /// The request's own field `speculation`.
    Request,
    /// The server's share, by the request's id. Such requests can be compared: nothing in them
    /// chose their arm.
    Share,
    /// The server's default for all requests.
    Default,
}

/// A request that has ended: a line of the file. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The request's id.
    pub id: String,
    /// When it arrived, in seconds since 1970.
    pub time: f64,
    /// The path that it was sent to.
    pub path: String,
    /// How it was decoded.
    pub arm: RecordedArm,
    /// What chose that.
    pub arm_by: ArmSource,
    /// Its parameters, without its texts.
    pub parameters: Map<String, Value>,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens found in the prefix cache.
    pub cached_tokens: usize,
    /// Its answers.
    pub choices: Vec<RecordedChoice>,
    /// Its body, if bodies are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedChoice {
    /// `stop`, `length`, `context`, `cancelled` or `failed`.
    pub finish_reason: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens generated.
    pub completion_tokens: usize,
    /// Seconds from submission to admission, if it was admitted.
    pub queue_s: Option<f64>,
    /// Seconds from the request's arrival to the first token, if there was one.
    pub ttft_s: Option<f64>,
    /// Seconds from the request's arrival to the end.
    pub e2e_s: f64,
    /// The rounds after the first. Shape: (round) of (milliseconds since the round before, tokens).
    pub gaps: Vec<(f64, u32)>,
    /// Tokens drafted.
    pub drafted: u64,
    /// Of these, tokens accepted.
    pub accepted: u64,
    /// The text generated, if answers are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The tokens generated, if answers are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// The requests of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// In the order of the lines.
    pub requests: Vec<RecordedRequest>,
    /// Lines that were left out because they cannot be read.
    pub damaged: usize,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no request.
    #[error("{}: line {line} is no request of a record: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There are no requests.
    #[error("{}: there are no requests in it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The requests of a record. With `skip_damaged`, lines that cannot be read are counted and left
/// out.
///
/// # Errors
/// The file cannot be read, has no requests, or has a line that is no request and is not to be left
/// out.
pub fn read_record(path: &Path, skip_damaged: bool) -> Result<RequestRecord, RecordError> {
    let file = std::fs::File::open(path);
    let file = file.map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
    parse_record(BufReader::new(file), path, skip_damaged)
}

/// The same from the lines of `reader`; `path` is the record's name in errors.
///
/// # Errors
/// As [`read_record`].
pub fn parse_record(mut reader: impl BufRead, path: &Path, skip_damaged: bool) -> Result<RequestRecord, RecordError> {
    let cannot = |source| RecordError::Read { path: path.to_owned(), source };
    let (mut requests, mut bytes, mut damaged, mut line) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).map_err(cannot)? == 0 {
            break;
        }
        line += 1;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<RecordedRequest>(&bytes).map_err(|e| e.to_string()).and_then(checked) {
            Ok(request) => requests.push(request),
            Err(_) if skip_damaged => damaged += 1,
            Err(why) => return Err(RecordError::Line { path: path.to_owned(), line, why }),
        }
    }
    if requests.is_empty() {
        return Err(RecordError::Empty { path: path.to_owned() });
    }
    Ok(RequestRecord { requests, damaged })
}

/// A request whose times are possible.
fn checked(request: RecordedRequest) -> Result<RecordedRequest, String> {
    let is_time = |seconds: f64| (0.0..1e12).contains(&seconds);
    let sound = is_time(request.time)
        && request.choices.iter().all(|choice| {
            let times = [choice.queue_s, choice.ttft_s, Some(choice.e2e_s)];
            times.into_iter().flatten().all(is_time) && choice.gaps.iter().all(|(ms, _)| is_time(*ms))
        });
    if sound { Ok(request) } else { Err("a time is negative, or far too long".to_owned()) }
}
