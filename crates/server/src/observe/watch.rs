//! Follows a request from its submission to its end, whoever reads its answer: for the metrics, and for the record.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selfspec_engine::{Event, FinishReason, Gap, Summary};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::observe::arm::{Arm, ChosenBy};
use crate::observe::metrics::{Failure, Metrics};
use crate::observe::record::{RecordChoice, RecordLine, Recorder};
use crate::observe::ticket::Ticket;

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
        let begun = all.iter().any(|seen| seen.queue.is_some());
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
                // Where the answer has no head yet, its status says it: one that is no stream, and a stream of which nothing was admitted.
                if let Some(failure) =
                    Failure::of(ApiError::from(error).status()).filter(|_| self.about.stream && begun)
                {
                    self.metrics.failed(failure);
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

    /// The engine refused the request: the answer's status says it, and there is nothing to follow.
    pub(crate) fn forget(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use selfspec_engine::{EngineError, Progress, TokenEvent};
    use selfspec_speculate::TokenSource;

    use super::*;
    use crate::observe::exposition;
    use crate::observe::record::{LineCounts, RecordOptions};

    fn about(stream: bool) -> About {
        let (arm, by) = (Arm::Speculation, ChosenBy::Share);
        About { arm, by, stream, choices: 2, prompt_tokens: 3, parameters: Map::new() }
    }

    fn token() -> Event {
        let (source, progress) = (TokenSource::Plain, Progress::default());
        Event::Token(TokenEvent { id: 1, text: "a".to_owned(), source, logprob: None, progress })
    }

    /// The lines of `/metrics`.
    fn counted(metrics: &Metrics) -> String {
        use selfspec_engine::{Engine, EngineOptions};
        use selfspec_testkit::fake_target::{FakeOptions, fake_target};
        let backend = Box::new(fake_target(FakeOptions::default()));
        let engine = Engine::with_backend(backend, None, None, &EngineOptions::default()).expect("a thread");
        exposition::text(&metrics.families(&engine.counters(), 0, "fake"))
    }

    #[test]
    fn what_breaks_and_what_is_left_is_counted_and_recorded() {
        let lines: Arc<LineCounts> = Arc::default();
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let options = RecordOptions { path: file.path().to_owned(), prompts: true };
        let recorder = Arc::new(Recorder::open(&options, lines.clone()).expect("opened"));
        let metrics = Metrics::new(lines);
        let ticket = Ticket::new("a".to_owned(), "/v1/completions".to_owned());
        ticket.keep(axum::body::Bytes::from_static(b"{\"n\": 2}"));
        let watch = Watch::new(metrics.clone(), Some(recorder.clone()), ticket, about(true));
        for event in [Event::Prompt { tokens: 3 }, token(), token()] {
            watch.note(0, &event);
        }
        watch.note(0, &Event::Failed(EngineError::Panic { message: "it broke".to_owned() }));
        watch.note(0, &token());
        watch.note(1, &Event::Prompt { tokens: 3 });
        drop(watch);
        recorder.close();
        let text = counted(&metrics);
        let is = |line: &str| assert!(text.contains(&format!("\nselfspec_{line}\n")), "{line}: {text}");
        is("request_failures_total{kind=\"internal\"} 1");
        is("request_success_total{finished_reason=\"cancelled\"} 1");
        is("time_to_first_token_seconds_count{arm=\"speculation\"} 1");
        is("request_queue_time_seconds_count{arm=\"speculation\"} 2");
        is("e2e_request_latency_seconds_count{arm=\"speculation\"} 0");
        is("record_lines_total{outcome=\"written\"} 1");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("UTF-8");
        let line: RecordLine = serde_json::from_str(&text).expect("one line");
        let ends: Vec<&str> = line.choices.iter().map(|choice| choice.finish_reason.as_str()).collect();
        assert_eq!((line.id.as_str(), ends), ("a", vec!["failed", "cancelled"]));
        assert_eq!((line.choices[0].completion_tokens, line.choices[1].completion_tokens), (2, 0));
        assert!(line.choices[0].error.as_ref().is_some_and(|error| error.contains("it broke")));
        assert_eq!(line.request, Some(serde_json::json!({ "n": 2 })));
    }

    #[test]
    fn a_failure_is_counted_once() {
        let metrics = Metrics::new(Arc::default());
        let ticket = Ticket::new("a".to_owned(), "/v1/completions".to_owned());
        let watch = Watch::new(metrics.clone(), None, ticket, about(false));
        watch.note(0, &Event::Failed(EngineError::Stopped));
        assert!(counted(&metrics).contains("request_failures_total{kind=\"unavailable\"} 0"));
        let ticket = Ticket::new("b".to_owned(), "/v1/completions".to_owned());
        let watch = Watch::new(metrics.clone(), None, ticket, about(true));
        watch.note(0, &Event::Failed(EngineError::Stopped));
        assert!(counted(&metrics).contains("request_failures_total{kind=\"unavailable\"} 0"), "a stream not begun");
        metrics.answered(axum::http::StatusCode::SERVICE_UNAVAILABLE, true);
        metrics.answered(axum::http::StatusCode::NOT_FOUND, false);
        let text = counted(&metrics);
        assert!(text.contains("request_failures_total{kind=\"unavailable\"} 1"), "by its status");
        assert!(
            text.contains("request_failures_total{kind=\"invalid\"} 0"),
            "a page that is not there wanted no tokens"
        );
    }
}
