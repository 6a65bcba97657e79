//! Sends the requests of a record in the order of their times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{ReplayClient, ReplayTarget};
use super::compare::{ReplayResult, compare};
use super::error::ReplayError;
use super::report::{ReplayReport, ReplayedRequest};
use crate::progress::{LabNote, StageProgress};
use crate::rollout::record::RecordedRequest;

/// Longest wait, in seconds, that is taken for meant.
const LONGEST: f64 = 1e9;

/// How a record is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayOptions {
    /// How fast recorded time passes.
    pub speed: ReplaySpeed,
    /// Most requests at a time; others wait for their turn.
    pub concurrency: usize,
}

/// How fast recorded time passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplaySpeed {
    /// So many times as fast; above 0.
    Times(f64),
    /// Each request as soon as there is room.
    Max,
}

/// Replays the requests whose bodies were recorded.
///
/// # Errors
/// No request can be replayed, or the target is not the address of a server. A request that fails
/// is a result.
pub fn replay(
    requests: &[RecordedRequest],
    target: &ReplayTarget,
    options: ReplayOptions,
    progress: &dyn StageProgress,
) -> Result<ReplayReport, ReplayError> {
    let mut replayed: Vec<&RecordedRequest> = requests.iter().filter(|request| request.request.is_some()).collect();
    if replayed.is_empty() {
        return Err(ReplayError::NoPrompts { requests: requests.len() });
    }
    if let Some(request) = replayed.iter().find(|request| !request.path.starts_with("/v1/")) {
        return Err(ReplayError::Path { id: request.id.clone(), path: request.path.clone() });
    }
    replayed.sort_by(|a, b| a.time.total_cmp(&b.time));
    let client = ReplayClient::new(target)?;
    progress.note(&LabNote::Replay { requests: replayed.len(), url: target.base().to_owned() });
    let began = Instant::now();
    let results = send_all(&replayed, &client, options);
    Ok(ReplayReport {
        left_out: requests.len() - replayed.len(),
        seconds: began.elapsed().as_secs_f64(),
        requests: results,
    })
}

/// Sends the requests in the order of their times. Shape of the result: (request).
fn send_all(requests: &[&RecordedRequest], client: &ReplayClient, options: ReplayOptions) -> Vec<ReplayedRequest> {
    let (began, first) = (Instant::now(), requests.first().map_or(0.0, |request| request.time));
    let due = |request: &RecordedRequest| match options.speed {
        ReplaySpeed::Max => 0.0,
        ReplaySpeed::Times(times) => ((request.time - first) / times).min(LONGEST),
    };
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<ReplayedRequest>>> = Mutex::new(requests.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..options.concurrency.clamp(1, requests.len()) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(i) else { break };
                    let wait = due(request) - began.elapsed().as_secs_f64();
                    if wait > 0.0 {
                        std::thread::sleep(Duration::from_secs_f64(wait));
                    }
                    let late_s = began.elapsed().as_secs_f64() - due(request);
                    let result = send(request, client, late_s);
                    results.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

fn send(request: &RecordedRequest, client: &ReplayClient, late_s: f64) -> ReplayedRequest {
    let body = request.request.as_ref().unwrap_or(&Value::Null);
    let sent = Instant::now();
    let result = match client.send(&request.path, &request.id, body) {
        Ok(answer) => compare(request, &answer),
        Err(why) => ReplayResult::Failed(why),
    };
    ReplayedRequest { id: request.id.clone(), result, seconds: sent.elapsed().as_secs_f64(), late_s }
}
