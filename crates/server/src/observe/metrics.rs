//! The server's counters, and the list of all metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use selfspec_engine::{EngineCounters, FinishReason, Histogram, StepKind};
use selfspec_speculate::RoundReason;

use crate::observe::arm::DecodingArm;
use crate::observe::exposition::MetricFamily;
use crate::observe::record::RecordCounters;

/// Upper bounds for TTFT and time in the queue, in seconds.
const WAIT_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Upper bounds for times of whole requests, in seconds.
const WHOLE_BOUNDS: &[f64] =
    &[0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0];

const ENDS: [FinishReason; 4] =
    [FinishReason::Stop, FinishReason::Length, FinishReason::Context, FinishReason::Cancelled];

/// Why a generation request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    Invalid,
    Unauthorized,
    Overloaded,
    Unavailable,
    Internal,
}

impl RequestFailure {
    const ALL: [RequestFailure; 5] = [
        RequestFailure::Invalid,
        RequestFailure::Unauthorized,
        RequestFailure::Overloaded,
        RequestFailure::Unavailable,
        RequestFailure::Internal,
    ];

    fn name(self) -> &'static str {
        match self {
            RequestFailure::Invalid => "invalid",
            RequestFailure::Unauthorized => "unauthorized",
            RequestFailure::Overloaded => "overloaded",
            RequestFailure::Unavailable => "unavailable",
            RequestFailure::Internal => "internal",
        }
    }

    /// The failure that an answer of this status reports, if any.
    pub(crate) fn of(status: StatusCode) -> Option<RequestFailure> {
        match status {
            StatusCode::UNAUTHORIZED => Some(RequestFailure::Unauthorized),
            StatusCode::TOO_MANY_REQUESTS => Some(RequestFailure::Overloaded),
            StatusCode::SERVICE_UNAVAILABLE => Some(RequestFailure::Unavailable),
            status if status.is_client_error() => Some(RequestFailure::Invalid),
            status if status.is_server_error() => Some(RequestFailure::Internal),
            _ => None,
        }
    }
}

/// The server's own counters, beside those of the engine. Shape of pairs: ([`DecodingArm`]).
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    queue: [Histogram; 2],
    first_token: [Histogram; 2],
    whole: [Histogram; 2],
    ends: [AtomicU64; ENDS.len()],
    failures: [AtomicU64; RequestFailure::ALL.len()],
    responses: Mutex<BTreeMap<u16, u64>>, // (status)
    lines: Arc<RecordCounters>,
}

impl ServerMetrics {
    pub(crate) fn new(lines: Arc<RecordCounters>) -> Arc<Self> {
        let both = |bounds| std::array::from_fn(|_| Histogram::new(bounds));
        Arc::new(ServerMetrics {
            queue: both(WAIT_BOUNDS),
            first_token: both(WAIT_BOUNDS),
            whole: both(WHOLE_BOUNDS),
            ends: Default::default(),
            failures: Default::default(),
            responses: Mutex::default(),
            lines,
        })
    }

    /// Counts an answer of any path.
    pub(crate) fn count_response(&self, status: StatusCode) {
        *self.responses.lock().unwrap_or_else(PoisonError::into_inner).entry(status.as_u16()).or_default() += 1;
    }

    /// Counts a generation request that failed, wholly or after a part of its answer.
    pub(crate) fn count_failure(&self, failure: RequestFailure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a choice that left the queue.
    pub(crate) fn count_admission(&self, arm: DecodingArm, queued: Duration) {
        self.queue[arm as usize].observe(queued);
    }

    /// Counts a choice's first token.
    pub(crate) fn count_first_token(&self, arm: DecodingArm, after: Duration) {
        self.first_token[arm as usize].observe(after);
    }

    /// Counts a choice that ended without an error. The duration of a cancelled one depends on its
    /// client and is left out.
    pub(crate) fn count_end(&self, arm: DecodingArm, reason: FinishReason, after: Duration) {
        if let Some(place) = ENDS.iter().position(|end| *end == reason) {
            self.ends[place].fetch_add(1, Ordering::Relaxed);
        }
        if reason != FinishReason::Cancelled {
            self.whole[arm as usize].observe(after);
        }
    }

    /// All metrics with their values. `requests`: choices that are queued or running.
    pub(crate) fn families(&self, engine: &EngineCounters, requests: usize, model: &str) -> Vec<MetricFamily> {
        let mut families = Vec::from(gauges(engine, requests, model));
        families.extend(tokens(engine));
        families.extend(self.latencies(engine));
        families.extend(self.ends());
        families.extend(speculation(engine));
        families.extend(steps(engine));
        families
    }

    fn latencies(&self, engine: &EngineCounters) -> [MetricFamily; 4] {
        let read = |both: &[Histogram; 2]| by_arm(both.each_ref().map(Histogram::read));
        [
            MetricFamily::histogram("time_to_first_token_seconds", "From arrival to the first token (TTFT).")
                .by(&["arm"])
                .times(read(&self.first_token)),
            MetricFamily::histogram(
                "inter_token_latency_seconds",
                "Between tokens (ITL). The tokens of a round share the time since the previous round.",
            )
            .by(&["arm"])
            .times(by_arm(engine.inter_token.clone())),
            MetricFamily::histogram(
                "e2e_request_latency_seconds",
                "From arrival to the last token, without cancelled choices.",
            )
            .by(&["arm"])
            .times(read(&self.whole)),
            MetricFamily::histogram("request_queue_time_seconds", "From submission to admission.")
                .by(&["arm"])
                .times(read(&self.queue)),
        ]
    }

    fn ends(&self) -> [MetricFamily; 4] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines = self.lines.read();
        [
            MetricFamily::counter("request_success_total", "Choices that ended without an error, by finish reason.")
                .by(&["finished_reason"])
                .each(ENDS.iter().zip(&self.ends).map(|(end, n)| (end, count(n)))),
            MetricFamily::counter("request_failures_total", "Generation requests that failed, by kind.")
                .by(&["kind"])
                .each(RequestFailure::ALL.iter().zip(&self.failures).map(|(failure, n)| (failure.name(), count(n)))),
            MetricFamily::counter("http_responses_total", "Responses of all paths, by status.")
                .by(&["status"])
                .each(responses.into_iter().map(|(status, n)| (status, n as f64))),
            MetricFamily::counter(
                "record_lines_total",
                "Lines of the record: written, dropped because the disk was too slow, or failed.",
            )
            .by(&["outcome"])
            .each(
                [("written", lines.written), ("dropped", lines.dropped), ("failed", lines.failed)]
                    .map(|(o, n)| (o, n as f64)),
            ),
        ]
    }
}

fn by_arm<T>(both: [T; 2]) -> impl Iterator<Item = (DecodingArm, T)> {
    DecodingArm::ALL.into_iter().zip(both)
}

fn gauges(engine: &EngineCounters, requests: usize, model: &str) -> [MetricFamily; 8] {
    let held = engine.pages_used.saturating_sub(engine.pages_cached);
    let usage = if engine.pages > 0 { held as f64 / engine.pages as f64 } else { 0.0 };
    [
        MetricFamily::gauge("build_info", "Always 1.")
            .by(&["version", "model"])
            .at(vec![env!("CARGO_PKG_VERSION").to_owned(), model.to_owned()], 1.0),
        MetricFamily::gauge("requests", "Choices that are queued or running.").is(requests as f64),
        MetricFamily::gauge("num_requests_running", "Running choices.").is(engine.running as f64),
        MetricFamily::gauge("num_requests_waiting", "Queued choices, those that wait for KV pages included.")
            .is(engine.waiting as f64),
        MetricFamily::gauge("kv_cache_usage_perc", "Share of the KV pages that running requests hold, from 0 to 1.")
            .is(usage),
        MetricFamily::gauge("kv_pages", "KV pages in total.").is(engine.pages as f64),
        MetricFamily::gauge("kv_pages_used", "KV pages in use, those of the prefix cache included.")
            .is(engine.pages_used as f64),
        MetricFamily::gauge("kv_pages_cached", "KV pages that only the prefix cache holds; they are freed on demand.")
            .is(engine.pages_cached as f64),
    ]
}

fn tokens(engine: &EngineCounters) -> [MetricFamily; 4] {
    let prompt: u64 = engine.prompt_tokens.iter().sum();
    let both = |both: [u64; 2]| by_arm(both.map(|n| n as f64));
    [
        MetricFamily::counter("prompt_tokens_total", "Prompt tokens of admitted choices.")
            .by(&["arm"])
            .each(both(engine.prompt_tokens)),
        MetricFamily::counter("generation_tokens_total", "Tokens generated, counted one by one as they are committed.")
            .by(&["arm"])
            .each(both(engine.generated_tokens)),
        MetricFamily::counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.")
            .is(prompt as f64),
        MetricFamily::counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")
            .is(engine.cached_tokens as f64),
    ]
}

fn speculation(engine: &EngineCounters) -> [MetricFamily; 5] {
    let accepted: u64 = engine.accepted.iter().sum();
    [
        MetricFamily::counter("spec_decode_num_drafts_total", "Rounds with a draft.").is(engine.drafts as f64),
        MetricFamily::counter("spec_decode_num_draft_tokens_total", "Tokens drafted.").is(engine.drafted as f64),
        MetricFamily::counter("spec_decode_num_accepted_tokens_total", "Drafted tokens accepted.").is(accepted as f64),
        MetricFamily::counter(
            "spec_decode_num_accepted_tokens_per_pos_total",
            "Drafted tokens accepted, by position in the draft, from 0.",
        )
        .by(&["position"])
        .each(engine.accepted.iter().enumerate().map(|(place, n)| (place, *n as f64))),
        MetricFamily::counter("spec_decode_bypass_total", "Rounds without a draft, by reason.")
            .by(&["reason"])
            .each(RoundReason::LABELS.iter().zip(engine.bypassed).map(|(reason, n)| (reason, n as f64))),
    ]
}

fn steps(engine: &EngineCounters) -> [MetricFamily; 6] {
    [
        MetricFamily::counter("steps_total", "Steps: passes over a list of rows, of all layers or some.").is(engine.steps as f64),
        MetricFamily::counter(
            "step_seconds_total",
            "Seconds in steps. A step with rows of several kinds counts for the first of prefill, draft, verify, plain.",
        )
        .by(&["kind"])
        .each(StepKind::ALL.iter().zip(engine.step_seconds).map(|(kind, seconds)| (kind.name(), seconds))),
        MetricFamily::counter("rows_total", "Rows in all steps.").is(engine.rows as f64),
        MetricFamily::counter("layer_rows_total", "Rows times layers that they ran.").is(engine.layer_rows as f64),
        MetricFamily::counter("num_preemptions_total", "Preemptions: a running choice loses its KV pages to older ones and is computed again.")
            .is(engine.preemptions as f64),
        MetricFamily::counter("panics_total", "Steps that panicked.").is(engine.panics as f64),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use selfspec_engine::{Engine, EngineOptions};
    use selfspec_testkit::fake_target::{FakeOptions, fake_target};

    use super::*;
    use crate::observe::exposition::{names, table};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn families() -> Vec<MetricFamily> {
        let backend = Box::new(fake_target(FakeOptions::default()));
        let engine = Engine::with_backend(backend, None, None, &EngineOptions::default()).expect("a thread");
        ServerMetrics::new(Arc::default()).families(&engine.counters(), 0, "fake")
    }

    /// `UPDATE_DOCS=1 cargo test -p selfspec-server` rewrites the table.
    #[test]
    fn the_page_of_the_metrics_is_up_to_date() {
        let path = root().join("docs/metrics.md");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let (start, end) = ("<!-- metrics: written by a test -->\n", "<!-- end -->\n");
        let (before, rest) = page.split_once(start).expect("a marker");
        let (old, after) = rest.split_once(end).expect("a marker");
        let new = table(&families());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, format!("{before}{start}{new}{end}{after}")).expect("written");
        } else {
            assert_eq!(old, new, "docs/metrics.md is stale: UPDATE_DOCS=1 cargo test -p selfspec-server rewrites it");
        }
    }

    #[test]
    fn the_dashboard_queries_metrics_that_exist() {
        let text = std::fs::read_to_string(root().join("deploy/grafana/selfspec.json")).expect("the file is there");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let known: BTreeSet<String> = names(&families()).into_iter().collect();
        let mut queries = Vec::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            for target in panel["targets"].as_array().into_iter().flatten() {
                queries.push(target["expr"].as_str().expect("a query").to_owned());
            }
        }
        assert!(queries.len() > 10, "{}", queries.len());
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used = queries.iter().flat_map(|q| q.split(|c| !word(c))).filter(|w| w.starts_with("selfspec_"));
        for name in used {
            assert!(known.contains(name), "{name}");
        }
        assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
    }
}
