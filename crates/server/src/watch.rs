//! Follows a request from its submission to its end, whoever reads its answer: for the metrics, and for the record.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selfspec_engine::{EngineError, Event, FinishReason, Gap, Summary};
use serde_json::{Map, Value};

use crate::arm::{Arm, ChosenBy};
use crate::metrics::{Failure, Metrics};
use crate::record::{RecordChoice, RecordLine, Recorder};
use crate::ticket::Ticket;

/// Sees every event of a request. What has not ended when it is dropped counts as cancelled.
#[derive(Debug)]
pub(crate) struct Watch {
    metrics: Arc<Metrics>,
    recorder: Option<Arc<Recorder>>,
    ticket: Arc<Ticket>,
    about: About,
    submitted: Instant,
    seen: Mutex<Vec<Seen>>, // (choice)
}

/// What is known of a request before it begins.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) arm: Arm,
    pub(crate) by: ChosenBy,
    pub(crate) stream: bool,
    pub(crate) choices: usize,
    pub(crate) prompt_tokens: usize,
    /// What was asked for, but for texts.
    pub(crate) parameters: Map<String, Value>,
}

/// What has been seen of a choice.
#[derive(Debug, Default)]
struct Seen {
    queue: Option<Duration>,
    first_token: Option<Duration>,
    tokens: usize,
    cached: usize,
    ended: Option<RecordChoice>,
}

impl Watch {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        recorder: Option<Arc<Recorder>>,
        ticket: Arc<Ticket>,
        about: About,
    ) -> Arc<Self> {
        let seen = Mutex::new((0..about.choices).map(|_| Seen::default()).collect());
        Arc::new(Watch { metrics, recorder, ticket, about, submitted: Instant::now(), seen })
    }

    /// Takes note of an event of a choice.
    pub(crate) fn note(&self, choice: usize, event: &Event) {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = all.get_mut(choice).filter(|seen| seen.ended.is_none()) else { return };
        match event {
            Event::Prompt { .. } => {
                let waited = self.submitted.elapsed();
                self.metrics.admitted(self.about.arm, waited);
                seen.queue = Some(waited);
            }
            Event::Token(_) => {
                seen.tokens += 1;
                if seen.first_token.is_none() {
                    let waited = self.ticket.arrived.elapsed();
                    self.metrics.first_token(self.about.arm, waited);
                    seen.first_token = Some(waited);
                }
            }
            Event::Done(summary) => {
                let took = self.ticket.arrived.elapsed();
                self.metrics.ended(self.about.arm, summary.finish_reason, took);
                seen.cached = summary.cached_tokens;
                seen.end(self.done(summary), took);
            }
            Event::Failed(error) => {
                // The status of an answer that is no stream says it.
                if self.about.stream {
                    self.metrics.failed(failure(error));
                }
                let ended = RecordChoice {
                    finish_reason: "failed".to_owned(),
                    error: Some(error.to_string()),
                    ..RecordChoice::default()
                };
                seen.end(ended, self.ticket.arrived.elapsed());
            }
        }
        if all.iter().all(|seen| seen.ended.is_some()) {
            self.record(&mut all);
        }
    }

    fn done(&self, summary: &Summary) -> RecordChoice {
        let told = self.recorder.as_ref().is_some_and(|recorder| recorder.prompts());
        let milliseconds = |gap: &Gap| ((f64::from(gap.seconds) * 1e6).round() / 1e3, gap.tokens);
        RecordChoice {
            finish_reason: summary.finish_reason.to_string(),
            gaps: summary.gaps.iter().map(milliseconds).collect(),
            drafted: summary.stats.drafted,
            accepted: summary.stats.accepted,
            text: told.then(|| summary.text.clone()),
            token_ids: told.then(|| summary.token_ids.clone()),
            ..RecordChoice::default()
        }
    }

    /// Hands the line over, all choices having ended.
    fn record(&self, all: &mut [Seen]) {
        let Some(recorder) = &self.recorder else { return };
        let line = RecordLine {
            id: self.ticket.id.clone(),
            time: self.ticket.time,
            path: self.ticket.path.clone(),
            arm: self.about.arm,
            arm_by: self.about.by,
            parameters: self.about.parameters.clone(),
            prompt_tokens: self.about.prompt_tokens,
            cached_tokens: all.first().map_or(0, |seen| seen.cached),
            choices: all.iter().filter_map(|seen| seen.ended.clone()).collect(),
            request: None,
        };
        recorder.write(line, self.ticket.body().filter(|_| recorder.prompts()));
    }
}

impl Seen {
    /// Takes how it ended, and adds what was seen on the way.
    fn end(&mut self, ended: RecordChoice, took: Duration) {
        self.ended = Some(RecordChoice {
            completion_tokens: self.tokens,
            queue_s: self.queue.map(micros),
            ttft_s: self.first_token.map(micros),
            e2e_s: micros(took),
            ..ended
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let open = all.iter_mut().filter(|seen| seen.ended.is_none());
        let mut left = 0;
        for seen in open {
            let took = self.ticket.arrived.elapsed();
            self.metrics.ended(self.about.arm, FinishReason::Cancelled, took);
            let finish_reason = FinishReason::Cancelled.to_string();
            seen.end(RecordChoice { finish_reason, ..RecordChoice::default() }, took);
            left += 1;
        }
        if left > 0 {
            self.record(&mut all);
        }
    }
}

/// Seconds, as exact as they are worth.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// What kind of failure ends a stream that has begun.
fn failure(error: &EngineError) -> Failure {
    match error {
        EngineError::Stopped => Failure::Unavailable,
        EngineError::Spec(_) | EngineError::Backend(_) | EngineError::Text(_) => Failure::Invalid,
        _ => Failure::Internal,
    }
}
