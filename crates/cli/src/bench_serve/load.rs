//! Requests on threads, as they arrive and as places are free.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::answer::Answer;
use super::client::Client;
use super::failure::Failure;
use crate::progress::Steps;

/// Stack of a thread that waits for an answer.
const STACK: usize = 512 << 10;

/// One request of a run. Times are in seconds since the run began.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Which prompt, from 0.
    pub(super) prompt: usize,
    /// When it arrived; none: as soon as there was a place.
    pub(super) due_s: Option<f64>,
    pub(super) sent_s: f64,
    pub(super) end_s: f64,
    pub(super) result: Result<Answer, Failure>,
}

/// All requests of a run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) duration_s: f64,
}

/// What a run sends.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Traffic {
    pub(super) requests: usize,
    /// Requests at a time; none: as many as arrive.
    pub(super) concurrency: Option<usize>,
}

/// Sends the bodies in turn until there were `traffic.requests`, request i not before `arrivals[i]`, and waits for all answers.
///
/// # Errors
/// The system gives no more threads.
pub(super) fn run(
    client: &Client,
    bodies: &[Vec<u8>],
    traffic: Traffic,
    arrivals: Option<&[f64]>,
    steps: &Steps,
) -> anyhow::Result<Run> {
    let places = Places::new(traffic.concurrency);
    let outcomes = Mutex::new(Vec::with_capacity(traffic.requests));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..traffic.requests {
            let due_s = arrivals.and_then(|times| times.get(i)).copied();
            if let Some(at) = due_s {
                std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(began.elapsed()));
            }
            places.take();
            let (places, outcomes) = (&places, &outcomes);
            let prompt = i % bodies.len();
            let work = move || {
                let sent_s = began.elapsed().as_secs_f64();
                let result = client.ask(&bodies[prompt]);
                let end_s = began.elapsed().as_secs_f64();
                places.give();
                steps.step();
                let outcome = Outcome { prompt, due_s, sent_s, end_s, result };
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((i, outcome));
            };
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            thread.map_err(|e| anyhow::anyhow!("cannot start a thread for request {}: {e}", i + 1))?;
        }
        anyhow::Ok(())
    })?;
    let duration_s = began.elapsed().as_secs_f64();
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(i, _)| *i);
    Ok(Run { outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(), duration_s })
}

/// Places for requests that are under way.
#[derive(Debug)]
struct Places {
    free: Option<Mutex<usize>>, // none: there are always more
    freed: Condvar,
}

impl Places {
    fn new(most: Option<usize>) -> Self {
        Places { free: most.map(Mutex::new), freed: Condvar::new() }
    }

    /// Waits for a place, and takes it.
    fn take(&self) {
        let Some(free) = &self.free else { return };
        let free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
    }

    fn give(&self) {
        let Some(free) = &self.free else { return };
        *free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
    }
}
