//! A file of the requests that have ended, one JSON object a line, for comparing and replaying them.
//!
//! A thread writes it. Whoever hands it a line never waits: where the disk cannot keep up, lines are dropped and counted. A disk that is full is logged once; the
//! server goes on, and so does the file as soon as there is room.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::observe::arm::{Arm, ChosenBy};

/// Lines that may wait for the disk.
const WAITING: usize = 1024;
/// How long the last lines may take when the server ends.
const LAST: Duration = Duration::from_secs(5);

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// The file, which is continued if it is there.
    pub path: PathBuf,
    /// Also the requests' bodies, and the text and tokens of the answers.
    pub prompts: bool,
}

/// A request that has ended: a line of the file. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordLine {
    /// The request's id.
    pub id: String,
    /// When it came, since 1970.
    pub time: f64,
    /// The path that it came to.
    pub path: String,
    /// How it was decoded.
    pub arm: Arm,
    /// Who chose that.
    pub arm_by: ChosenBy,
    /// What it asked for, but for its texts.
    pub parameters: Map<String, Value>,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens that were found in the prefix cache.
    pub cached_tokens: usize,
    /// Its answers.
    pub choices: Vec<RecordChoice>,
    /// Its body, if bodies are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordChoice {
    /// `stop`, `length`, `context`, `cancelled` or `failed`.
    pub finish_reason: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens generated.
    pub completion_tokens: usize,
    /// From submission to admission, if it was admitted.
    pub queue_s: Option<f64>,
    /// From the request's arrival to the first token, if there was one.
    pub ttft_s: Option<f64>,
    /// From the request's arrival to the end.
    pub e2e_s: f64,
    /// The rounds after the first: milliseconds since the one before, and tokens.
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

/// What became of the lines.
#[derive(Debug, Default)]
pub(crate) struct LineCounts {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// What became of the lines so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) written: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
}

impl LineCounts {
    pub(crate) fn read(&self) -> Lines {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Lines { written: get(&self.written), dropped: get(&self.dropped), failed: get(&self.failed) }
    }
}

enum Message {
    Line(Box<RecordLine>, Option<Bytes>),
    Close,
}

/// The way to the thread that writes.
#[derive(Debug)]
pub(crate) struct Recorder {
    sender: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lines: Arc<LineCounts>,
    prompts: bool,
}

impl Recorder {
    /// Opens the file, which only its owner may read if it is made anew.
    pub(crate) fn open(options: &RecordOptions, lines: Arc<LineCounts>) -> std::io::Result<Self> {
        Recorder::over(open(&options.path)?, options.prompts, WAITING, lines)
    }

    fn over(
        file: impl Write + Send + 'static,
        prompts: bool,
        waiting: usize,
        lines: Arc<LineCounts>,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(waiting);
        let counts = lines.clone();
        let thread = std::thread::Builder::new().name("record".to_owned());
        let thread = thread.spawn(move || write_all(file, &receiver, &counts))?;
        Ok(Recorder { sender, thread: Mutex::new(Some(thread)), lines, prompts })
    }

    /// Whether bodies and answers are recorded.
    pub(crate) fn prompts(&self) -> bool {
        self.prompts
    }

    /// Hands over a line, with the request's body where bodies are recorded.
    pub(crate) fn write(&self, line: RecordLine, body: Option<Bytes>) {
        match self.sender.try_send(Message::Line(Box::new(line), body)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lines.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits for the lines handed over so far, but not for ever; those that come later are dropped.
    pub(crate) fn close(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let since = Instant::now();
        let mut told = false;
        while !thread.is_finished() && since.elapsed() < LAST {
            told = told || !matches!(self.sender.try_send(Message::Close), Err(TrySendError::Full(_)));
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            let _ = thread.join(); // a panic there has been printed
        } else {
            tracing::error!("the last lines of the record are not on the disk");
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

/// The thread that writes: each line with one call, so that nothing is left in a buffer.
fn write_all(mut file: impl Write, receiver: &Receiver<Message>, counts: &LineCounts) {
    let (mut torn, mut told) = (false, false);
    while let Ok(Message::Line(mut line, body)) = receiver.recv() {
        line.request = body.and_then(|body| serde_json::from_slice(&body).ok());
        // What failed may have left part of a line.
        let mut text = if torn { b"\n".to_vec() } else { Vec::new() };
        let result = serde_json::to_writer(&mut text, &line).map_err(std::io::Error::from).and_then(|()| {
            text.push(b'\n');
            file.write_all(&text)
        });
        torn = result.is_err();
        match result {
            Ok(()) => counts.written.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(%error, "a request could not be recorded; the metric selfspec_record_lines_total counts how many");
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

    fn line(id: &str) -> RecordLine {
        RecordLine {
            id: id.to_owned(),
            time: 1.5,
            path: "/v1/completions".to_owned(),
            arm: Arm::Plain,
            arm_by: ChosenBy::Share,
            parameters: Map::new(),
            prompt_tokens: 1,
            cached_tokens: 0,
            choices: vec![RecordChoice::default()],
            request: None,
        }
    }

    /// Takes a write when it is told to, with or without an error; keeps what it was given.
    struct Slow {
        turns: mpsc::Receiver<bool>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Slow {
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
    fn nobody_waits_for_the_disk_and_every_line_is_accounted_for() {
        let (turn, turns) = mpsc::channel();
        let written = Arc::new(Mutex::new(String::new()));
        let counts = Arc::new(LineCounts::default());
        let file = Slow { turns, written: written.clone() };
        let recorder = Recorder::over(file, true, 2, counts.clone()).expect("a thread");
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
        let whole: Vec<RecordLine> = text.lines().skip(1).map(|l| serde_json::from_str(l).expect("whole")).collect();
        assert_eq!(whole.len() as u64, lines.written, "only the first one is torn: {text}");
        assert_eq!(whole[0].request, Some(serde_json::json!({ "a": 1 })));
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_its_owners_and_is_continued() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record.jsonl");
        for id in ["a", "b"] {
            let options = RecordOptions { path: path.clone(), prompts: false };
            let recorder = Recorder::open(&options, Arc::default()).expect("opened");
            recorder.write(line(id), None);
            recorder.close();
        }
        let text = std::fs::read_to_string(&path).expect("there");
        let ids: Vec<RecordLine> = text.lines().map(|l| serde_json::from_str(l).expect("a line")).collect();
        assert_eq!(ids, [line("a"), line("b")]);
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }
}
