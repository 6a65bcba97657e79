//! Follows a request from submission to its end, whoever reads the answer: for the metrics and for
//! the record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use selfspec_engine::{Event, FinishReason, RequestSummary, TokenGap};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::observe::arm::{ArmSource, DecodingArm};
use crate::observe::context::RequestContext;
use crate::observe::metrics::{RequestFailure, ServerMetrics};
use crate::observe::record::{RecordedChoice, RecordedRequest, RequestRecorder};

/// Receives every event of a request. Choices that have not ended when it is dropped count as
/// cancelled.
#[derive(Debug)]
pub(crate) struct RequestObserver {
    metrics: Arc<ServerMetrics>,
    recorder: Option<Arc<RequestRecorder>>,
    context: Arc<RequestContext>,
    facts: RequestFacts,
    submitted: Instant,
    opened: AtomicBool,                  // the stream was opened before the request ran
    choices: Mutex<Vec<ObservedChoice>>, // (choice)
}

/// What is known of a request before it runs.
#[derive(Debug, Clone)]
pub(crate) struct RequestFacts {
    pub(crate) arm: DecodingArm,
    pub(crate) arm_source: ArmSource,
    pub(crate) stream: bool,
    pub(crate) choices: usize,
    pub(crate) prompt_tokens: usize,
    /// Its parameters without texts.
    pub(crate) parameters: Map<String, Value>,
}

/// What has been observed of a choice.
#[derive(Debug, Default)]
struct ObservedChoice {
    queued: Option<Duration>,
    first_token: Option<Duration>,
    tokens: usize,
    cached: usize,
    end: Option<RecordedChoice>,
}

impl RequestObserver {
    pub(crate) fn new(
        metrics: Arc<ServerMetrics>,
        recorder: Option<Arc<RequestRecorder>>,
        context: Arc<RequestContext>,
        facts: RequestFacts,
    ) -> Arc<Self> {
        let choices = Mutex::new((0..facts.choices).map(|_| ObservedChoice::default()).collect());
        let (submitted, opened) = (Instant::now(), AtomicBool::new(false));
        Arc::new(RequestObserver { metrics, recorder, context, facts, submitted, opened, choices })
    }

    /// Observes an event of a choice.
    pub(crate) fn observe(&self, choice: usize, event: &Event) {
        let mut choices = self.choices();
        let admitted = choices.iter().any(|choice| choice.queued.is_some());
        let begun = admitted || self.opened.load(Ordering::SeqCst);
        let Some(observed) = choices.get_mut(choice).filter(|choice| choice.end.is_none()) else { return };
        match event {
            Event::Prompt { .. } => {
                let waited = self.submitted.elapsed();
                self.metrics.count_admission(self.facts.arm, waited);
                observed.queued = Some(waited);
            }
            Event::Token(_) => {
                observed.tokens += 1;
                if observed.first_token.is_none() {
                    let waited = self.context.arrived.elapsed();
                    self.metrics.count_first_token(self.facts.arm, waited);
                    observed.first_token = Some(waited);
                }
            }
            Event::Done(summary) => {
                let took = self.context.arrived.elapsed();
                self.metrics.count_end(self.facts.arm, summary.finish_reason, took);
                observed.cached = summary.cached_tokens;
                observed.end_with(self.finished(summary), took);
            }
            Event::Failed(error) => {
                // An answer whose status is not sent yet reports the failure by it. Here only
                // streams that have begun are counted.
                let failure = RequestFailure::of(ApiError::from(error).status());
                if let Some(failure) = failure.filter(|_| self.facts.stream && begun) {
                    self.metrics.count_failure(failure);
                }
                let failed = RecordedChoice {
                    finish_reason: "failed".to_owned(),
                    error: Some(error.to_string()),
                    ..RecordedChoice::default()
                };
                observed.end_with(failed, self.context.arrived.elapsed());
            }
        }
        if choices.iter().all(|choice| choice.end.is_some()) {
            self.record(&choices);
        }
    }

    /// The stream is opened although no choice runs: a failure will not be its status.
    pub(crate) fn open(&self) {
        self.opened.store(true, Ordering::SeqCst);
    }

    /// Forgets the choices of a request that the engine refused: the status of the answer reports
    /// that.
    pub(crate) fn forget(&self) {
        self.choices().clear();
    }

    fn choices(&self) -> MutexGuard<'_, Vec<ObservedChoice>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finished(&self, summary: &RequestSummary) -> RecordedChoice {
        let with_text = self.recorder.as_ref().is_some_and(|recorder| recorder.prompts());
        let milliseconds = |gap: &TokenGap| ((f64::from(gap.seconds) * 1e6).round() / 1e3, gap.tokens);
        RecordedChoice {
            finish_reason: summary.finish_reason.to_string(),
            gaps: summary.gaps.iter().map(milliseconds).collect(),
            drafted: summary.stats.drafted,
            accepted: summary.stats.accepted,
            text: with_text.then(|| summary.text.clone()),
            token_ids: with_text.then(|| summary.token_ids.clone()),
            ..RecordedChoice::default()
        }
    }

    /// Records the request once all choices have ended.
    fn record(&self, choices: &[ObservedChoice]) {
        let Some(recorder) = &self.recorder else { return };
        let request = RecordedRequest {
            id: self.context.id.clone(),
            time: self.context.time,
            path: self.context.path.clone(),
            arm: self.facts.arm,
            arm_by: self.facts.arm_source,
            parameters: self.facts.parameters.clone(),
            prompt_tokens: self.facts.prompt_tokens,
            cached_tokens: choices.first().map_or(0, |choice| choice.cached),
            choices: choices.iter().filter_map(|choice| choice.end.clone()).collect(),
            request: None,
        };
        recorder.write(request, self.context.body().filter(|_| recorder.prompts()));
    }
}

impl ObservedChoice {
    /// Ends the choice, and adds what was observed before.
    fn end_with(&mut self, end: RecordedChoice, took: Duration) {
        self.end = Some(RecordedChoice {
            completion_tokens: self.tokens,
            queue_s: self.queued.map(seconds),
            ttft_s: self.first_token.map(seconds),
            e2e_s: seconds(took),
            ..end
        });
    }
}

impl Drop for RequestObserver {
    fn drop(&mut self) {
        let mut choices = std::mem::take(&mut *self.choices());
        let mut cancelled = false;
        for choice in choices.iter_mut().filter(|choice| choice.end.is_none()) {
            let took = self.context.arrived.elapsed();
            self.metrics.count_end(self.facts.arm, FinishReason::Cancelled, took);
            let finish_reason = FinishReason::Cancelled.to_string();
            choice.end_with(RecordedChoice { finish_reason, ..RecordedChoice::default() }, took);
            cancelled = true;
        }
        if cancelled {
            self.record(&choices);
        }
    }
}

/// Seconds, rounded to microseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use selfspec_engine::{EngineError, Progress, TokenEvent};
    use selfspec_speculate::TokenSource;

    use super::*;
    use crate::observe::exposition;
    use crate::observe::record::{RecordCounters, RecordOptions};

    fn facts(stream: bool) -> RequestFacts {
        let (arm, arm_source) = (DecodingArm::Speculation, ArmSource::Share);
        RequestFacts { arm, arm_source, stream, choices: 2, prompt_tokens: 3, parameters: Map::new() }
    }

    fn token() -> Event {
        let (source, progress) = (TokenSource::Plain, Progress::default());
        Event::Token(TokenEvent { id: 1, text: "a".to_owned(), reasoning: false, source, logprob: None, progress })
    }

    /// The lines of `/metrics`.
    fn counted(metrics: &ServerMetrics) -> String {
        use selfspec_engine::{Engine, EngineOptions};
        use selfspec_testkit::fake_target::{FakeOptions, fake_target};
        let backend = Box::new(fake_target(FakeOptions::default()));
        let engine = Engine::with_backend(backend, None, None, &EngineOptions::default()).expect("a thread");
        exposition::text(&metrics.families(&engine.counters(), 0, "fake"))
    }

    #[test]
    fn failed_and_cancelled_choices_are_counted_and_recorded() {
        let lines: Arc<RecordCounters> = Arc::default();
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let options = RecordOptions { path: file.path().to_owned(), prompts: true };
        let recorder = Arc::new(RequestRecorder::open(&options, lines.clone()).expect("opened"));
        let metrics = ServerMetrics::new(lines);
        let context = RequestContext::new("a".to_owned(), "/v1/completions".to_owned());
        context.keep_body(axum::body::Bytes::from_static(b"{\"n\": 2}"));
        let observer = RequestObserver::new(metrics.clone(), Some(recorder.clone()), context, facts(true));
        for event in [Event::Prompt { tokens: 3 }, token(), token()] {
            observer.observe(0, &event);
        }
        observer.observe(0, &Event::Failed(EngineError::Panic { message: "it broke".to_owned() }));
        observer.observe(0, &token());
        observer.observe(1, &Event::Prompt { tokens: 3 });
        drop(observer);
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
        let line: RecordedRequest = serde_json::from_str(&text).expect("one line");
        let ends: Vec<&str> = line.choices.iter().map(|choice| choice.finish_reason.as_str()).collect();
        assert_eq!((line.id.as_str(), ends), ("a", vec!["failed", "cancelled"]));
        assert_eq!((line.choices[0].completion_tokens, line.choices[1].completion_tokens), (2, 0));
        assert!(line.choices[0].error.as_ref().is_some_and(|error| error.contains("it broke")));
        assert_eq!(line.request, Some(serde_json::json!({ "n": 2 })));
    }

    #[test]
    fn a_failure_is_counted_once() {
        let metrics = ServerMetrics::new(Arc::default());
        let context = RequestContext::new("a".to_owned(), "/v1/completions".to_owned());
        let observer = RequestObserver::new(metrics.clone(), None, context, facts(false));
        observer.observe(0, &Event::Failed(EngineError::Stopped));
        assert!(counted(&metrics).contains("request_failures_total{kind=\"unavailable\"} 0"));
        let context = RequestContext::new("b".to_owned(), "/v1/completions".to_owned());
        let observer = RequestObserver::new(metrics.clone(), None, context, facts(true));
        observer.observe(0, &Event::Failed(EngineError::Stopped));
        assert!(
            counted(&metrics).contains("request_failures_total{kind=\"unavailable\"} 0"),
            "the stream has not begun"
        );
        metrics.count_failure(RequestFailure::of(axum::http::StatusCode::SERVICE_UNAVAILABLE).expect("a failure"));
        assert!(counted(&metrics).contains("request_failures_total{kind=\"unavailable\"} 1"), "by its status");
    }
}
