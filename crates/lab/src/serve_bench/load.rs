//! Requests on threads, as they arrive and as there is room.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::answer::StreamedAnswer;
use super::client::LoadClient;
use super::failure::{LoadFailure, ServeBenchError};
use crate::progress::Stage;

/// Stack of a thread that waits for an answer.
const STACK: usize = 512 << 10;

/// One request of a run. Times are in seconds since the run began.
#[derive(Debug, Clone)]
pub struct TimedRequest {
    /// Which prompt, from 0.
    pub prompt: usize,
    /// When it arrived; none: as soon as there was room.
    pub due_s: Option<f64>,
    /// When it was sent.
    pub sent_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Its answer, or why there is none.
    pub result: Result<StreamedAnswer, LoadFailure>,
}

/// All requests of a run.
#[derive(Debug, Clone)]
pub struct LoadRun {
    /// In the order in which they arrived.
    pub requests: Vec<TimedRequest>,
    /// Seconds from the first request to the last answer.
    pub duration_s: f64,
}

/// What a run sends.
#[derive(Debug, Clone, Copy)]
pub struct LoadTraffic {
    /// Requests of the run.
    pub requests: usize,
    /// Most requests at a time; none: as many as arrive.
    pub concurrency: Option<usize>,
}

/// Sends `traffic.requests` requests, which take the bodies in turn, and waits for all answers.
/// Request i is not sent before `arrivals[i]`.
///
/// # Errors
/// The system gives no more threads.
pub(super) fn run(
    client: &LoadClient,
    bodies: &[Vec<u8>],
    traffic: LoadTraffic,
    arrivals: Option<&[f64]>,
    stage: &Stage<'_>,
) -> Result<LoadRun, ServeBenchError> {
    let slots = RequestSlots::new(traffic.concurrency);
    let timed = Mutex::new(Vec::with_capacity(traffic.requests));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..traffic.requests {
            let due_s = arrivals.and_then(|times| times.get(i)).copied();
            if let Some(at) = due_s {
                std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(began.elapsed()));
            }
            slots.acquire();
            let (slots, timed) = (&slots, &timed);
            let prompt = i % bodies.len();
            let work = move || {
                let sent_s = began.elapsed().as_secs_f64();
                let result = client.send(&bodies[prompt]);
                let end_s = began.elapsed().as_secs_f64();
                slots.release();
                stage.step();
                let request = TimedRequest { prompt, due_s, sent_s, end_s, result };
                timed.lock().unwrap_or_else(PoisonError::into_inner).push((i, request));
            };
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            thread.map_err(|source| ServeBenchError::Thread { request: i + 1, source })?;
        }
        Ok::<(), ServeBenchError>(())
    })?;
    let duration_s = began.elapsed().as_secs_f64();
    let mut timed = timed.into_inner().unwrap_or_else(PoisonError::into_inner);
    timed.sort_by_key(|(i, _)| *i);
    Ok(LoadRun { requests: timed.into_iter().map(|(_, request)| request).collect(), duration_s })
}

/// Room for requests under way.
#[derive(Debug)]
struct RequestSlots {
    free: Option<Mutex<usize>>, // none: there is always room
    freed: Condvar,
}

impl RequestSlots {
    fn new(most: Option<usize>) -> Self {
        RequestSlots { free: most.map(Mutex::new), freed: Condvar::new() }
    }

    /// Waits until there is room, and takes it.
    fn acquire(&self) {
        let Some(free) = &self.free else { return };
        let free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
    }

    fn release(&self) {
        let Some(free) = &self.free else { return };
        *free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
    }
}
