//! `selfspec replay`: sends the requests of a record to a server again, at the times at which they came, and compares the answers.

mod answer;
mod client;
mod report;
mod verdict;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use selfspec_server::RecordLine;
use serde_json::Value;

use crate::args::{ReplayArgs, Speed};
use crate::failure::{Told, usage};
use crate::output::{self, Ui};
use crate::record_file;
use client::Client;
use report::Report;
use verdict::{Outcome, Verdict};

/// Longest wait that is expected to be meant.
const LONGEST: f64 = 1e9;

pub(crate) fn run(args: &ReplayArgs, ui: &Ui) -> anyhow::Result<()> {
    let mut lines = record_file::read(&args.file, ui)?;
    let recorded = lines.len();
    lines.retain(|line| line.request.is_some());
    if lines.is_empty() {
        let message =
            format!("{}: its {recorded} requests were recorded without their prompts", args.file.path.display());
        return Err(usage(message, "`selfspec serve --record FILE --record-prompts` records what can be replayed"));
    }
    if let Some(line) = lines.iter().find(|line| !line.path.starts_with("/v1/")) {
        return Err(usage(format!("request {:?}: {:?} is no path to answers", line.id, line.path), None));
    }
    lines.sort_by(|a, b| a.time.total_cmp(&b.time));
    let client = Client::new(&args.url, args.api_key.as_deref())?;
    ui.detail(&format!("{} requests to {}", lines.len(), client.base()));
    let began = Instant::now();
    let outcomes = send_all(&lines, &client, args);
    let report = Report {
        left_out: recorded - lines.len(),
        seconds: began.elapsed().as_secs_f64(),
        outcomes: lines.iter().map(|line| line.id.as_str()).zip(outcomes).collect(),
    };
    let text = if args.json { serde_json::to_string_pretty(&report.json())? + "\n" } else { report.text() };
    output::print(&text)?;
    if report.is_fine() { Ok(()) } else { Err(Told.into()) }
}

/// Sends the requests in the order of their times; what became of each.
fn send_all(lines: &[RecordLine], client: &Client, args: &ReplayArgs) -> Vec<Outcome> {
    let (began, first) = (Instant::now(), lines.first().map_or(0.0, |line| line.time));
    let due = |line: &RecordLine| match args.speed {
        Speed::Max => 0.0,
        Speed::Times(times) => ((line.time - first) / times).min(LONGEST),
    };
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(lines.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..args.concurrency.min(lines.len()) {
            scope.spawn(|| {
                while let Some((i, line)) = take(&next, lines) {
                    let wait = due(line) - began.elapsed().as_secs_f64();
                    if wait > 0.0 {
                        std::thread::sleep(Duration::from_secs_f64(wait));
                    }
                    let late = began.elapsed().as_secs_f64() - due(line);
                    let outcome = ask(line, client, late);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.into_iter().flatten().collect()
}

fn take<'a>(next: &AtomicUsize, lines: &'a [RecordLine]) -> Option<(usize, &'a RecordLine)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    lines.get(i).map(|line| (i, line))
}

fn ask(line: &RecordLine, client: &Client, late: f64) -> Outcome {
    let body = line.request.as_ref().unwrap_or(&Value::Null);
    let sent = Instant::now();
    let verdict = match client.ask(&line.path, &line.id, body) {
        Ok(answer) => verdict::compare(line, &answer),
        Err(why) => Verdict::Failed(why),
    };
    Outcome { verdict, seconds: sent.elapsed().as_secs_f64(), late }
}
