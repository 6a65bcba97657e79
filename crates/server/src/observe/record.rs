//! A file of finished requests, one JSON object a line, for comparing and replaying them.
//!
//! A thread of its own writes it, so that no request waits for the disk. Lines are dropped and
//! counted when the disk is too slow. A write error is logged once; later lines are written again
//! as soon as the disk accepts them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::observe::arm::{ArmSource, DecodingArm};

/// Most lines that wait for the disk.
const QUEUE: usize = 1024;
/// Time limit for the last lines when the server ends.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// The file. Lines are appended to an existing one.
    pub path: PathBuf,
    /// Also record the bodies of requests, and the text and tokens of answers.
    pub prompts: bool,
}

/// A finished request: a line of the file. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct RecordedRequest {
    /// The request's id.
    pub(crate) id: String,
    /// When it arrived, since 1970.
    pub(crate) time: f64,
    /// Its path.
    pub(crate) path: String,
    /// How it was decoded.
    pub(crate) arm: DecodingArm,
    /// How the arm was chosen.
    pub(crate) arm_by: ArmSource,
    /// Its parameters without texts.
    pub(crate) parameters: Map<String, Value>,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: usize,
    /// Prompt tokens found in the prefix cache.
    pub(crate) cached_tokens: usize,
    /// Its choices.
    pub(crate) choices: Vec<RecordedChoice>,
    /// Its body, if bodies are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<Value>,
}

/// One choice of a recorded request.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct RecordedChoice {
    /// `stop`, `length`, `context`, `cancelled` or `failed`.
    pub(crate) finish_reason: String,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Tokens generated.
    pub(crate) completion_tokens: usize,
    /// Time in the queue, if it ran.
    pub(crate) queue_s: Option<f64>,
    /// From arrival to the first token, if there was one.
    pub(crate) ttft_s: Option<f64>,
    /// From arrival to the end.
    pub(crate) e2e_s: f64,
    /// For each round after the first: milliseconds since the previous one, and tokens. Shape:
    /// (round).
    pub(crate) gaps: Vec<(f64, u32)>,
    /// Tokens drafted.
    pub(crate) drafted: u64,
    /// Drafted tokens that were accepted.
    pub(crate) accepted: u64,
    /// The generated text, if answers are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The generated tokens, if answers are recorded. Shape: (token).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// Counters of lines by outcome.
#[derive(Debug, Default)]
pub(crate) struct RecordCounters {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// A reading of [`RecordCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordCounts {
    pub(crate) written: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
}

impl RecordCounters {
    pub(crate) fn read(&self) -> RecordCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecordCounts { written: get(&self.written), dropped: get(&self.dropped), failed: get(&self.failed) }
    }
}

enum RecorderMessage {
    Line(Box<RecordedRequest>, Option<Bytes>),
    Close,
}

/// Hands finished requests to the thread that writes the file.
#[derive(Debug)]
pub(crate) struct RequestRecorder {
    sender: SyncSender<RecorderMessage>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lines: Arc<RecordCounters>,
    prompts: bool,
}

impl RequestRecorder {
    /// Opens the file. A new one is readable by its owner only.
    pub(crate) fn open(options: &RecordOptions, lines: Arc<RecordCounters>) -> std::io::Result<Self> {
        RequestRecorder::over(open(&options.path)?, options.prompts, QUEUE, lines)
    }

    fn over(
        file: impl Write + Send + 'static,
        prompts: bool,
        waiting: usize,
        lines: Arc<RecordCounters>,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(waiting);
        let counts = lines.clone();
        let thread = std::thread::Builder::new().name("record".to_owned());
        let thread = thread.spawn(move || write_all(file, &receiver, &counts))?;
        Ok(RequestRecorder { sender, thread: Mutex::new(Some(thread)), lines, prompts })
    }

    /// Whether bodies and answers are recorded.
    pub(crate) fn prompts(&self) -> bool {
        self.prompts
    }

    /// Hands over a line, with the request's body if bodies are recorded.
    pub(crate) fn write(&self, line: RecordedRequest, body: Option<Bytes>) {
        match self.sender.try_send(RecorderMessage::Line(Box::new(line), body)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lines.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits for the lines handed over so far, for a limited time; later ones are dropped.
    pub(crate) fn close(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let since = Instant::now();
        let mut asked = false;
        while !thread.is_finished() && since.elapsed() < CLOSE_TIME {
            asked = asked || !matches!(self.sender.try_send(RecorderMessage::Close), Err(TrySendError::Full(_)));
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            let _ = thread.join(); // the thread's panic has been printed
        } else {
            tracing::error!("the last lines of the record were not written");
        }
    }
}

fn open(path: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The writing thread. It writes each line with one call, so that none stays in a buffer.
fn write_all(mut file: impl Write, receiver: &Receiver<RecorderMessage>, counts: &RecordCounters) {
    let (mut torn, mut logged) = (false, false);
    while let Ok(RecorderMessage::Line(mut line, body)) = receiver.recv() {
        line.request = body.and_then(|body| serde_json::from_slice(&body).ok());
        // A failed write may have left part of a line.
        let mut text = if torn { b"\n".to_vec() } else { Vec::new() };
        let result = serde_json::to_writer(&mut text, &line).map_err(std::io::Error::from).and_then(|()| {
            text.push(b'\n');
            file.write_all(&text)
        });
        torn = result.is_err();
        match result {
            Ok(()) => counts.written.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::error!(%error, "cannot record a request; the metric selfspec_record_lines_total counts further failures");
                }
                counts.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
    let _ = file.flush();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn line(id: &str) -> RecordedRequest {
        RecordedRequest {
            id: id.to_owned(),
            time: 1.5,
            path: "/v1/completions".to_owned(),
            arm: DecodingArm::Plain,
            arm_by: ArmSource::Share,
            parameters: Map::new(),
            prompt_tokens: 1,
            cached_tokens: 0,
            choices: vec![RecordedChoice::default()],
            request: None,
        }
    }

    /// A file that writes when the test says so, with or without an error, and keeps the text.
    struct SlowFile {
        turns: mpsc::Receiver<bool>,
        written: Arc<Mutex<String>>,
    }

    impl Write for SlowFile {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let fine = self.turns.recv().unwrap_or(true);
            let text = std::str::from_utf8(bytes).expect("JSON");
            if fine {
                self.written.lock().expect("sound").push_str(text);
                return Ok(bytes.len());
            }
            self.written.lock().expect("sound").push_str(&text[..3]);
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_caller_waits_for_the_disk_and_every_line_is_counted() {
        let (turn, turns) = mpsc::channel();
        let written = Arc::new(Mutex::new(String::new()));
        let counts = Arc::new(RecordCounters::default());
        let file = SlowFile { turns, written: written.clone() };
        let recorder = RequestRecorder::over(file, true, 2, counts.clone()).expect("a thread");
        for i in 0..20 {
            recorder.write(line(&i.to_string()), Some(Bytes::from_static(b"{\"a\":1}")));
        }
        assert!(counts.read().dropped >= 17, "one is being written, two wait: {:?}", counts.read());
        turn.send(false).expect("it writes");
        drop(turn);
        recorder.close();
        recorder.write(line("late"), None);
        let lines = counts.read();
        assert_eq!((lines.failed, lines.failed + lines.written + lines.dropped), (1, 21));
        let text = written.lock().expect("sound").clone();
        let whole: Vec<RecordedRequest> =
            text.lines().skip(1).map(|l| serde_json::from_str(l).expect("whole")).collect();
        assert_eq!(whole.len() as u64, lines.written, "only the first one is torn: {text}");
        assert_eq!(whole[0].request, Some(serde_json::json!({ "a": 1 })));
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_readable_by_its_owner_only_and_is_appended_to() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.jsonl");
        for id in ["a", "b"] {
            let options = RecordOptions { path: path.clone(), prompts: false };
            let recorder = RequestRecorder::open(&options, Arc::default()).expect("opened");
            recorder.write(line(id), None);
            recorder.close();
        }
        let text = std::fs::read_to_string(&path).expect("there");
        let ids: Vec<RecordedRequest> = text.lines().map(|l| serde_json::from_str(l).expect("a line")).collect();
        assert_eq!(ids, [line("a"), line("b")]);
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }
}
