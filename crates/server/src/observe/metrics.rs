//! What the server counts, and the list of all metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use selfspec_engine::{EngineCounters, FinishReason, Histogram, StepKind};
use selfspec_speculate::RoundReason;

use crate::observe::arm::Arm;
use crate::observe::exposition::Family;
use crate::observe::record::LineCounts;

/// Times to the first token and in the queue, in seconds.
const WAITS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Times of whole requests, in seconds.
const WHOLE: &[f64] =
    &[0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0];

const ENDS: [FinishReason; 4] =
    [FinishReason::Stop, FinishReason::Length, FinishReason::Context, FinishReason::Cancelled];

/// Why a request for an answer got none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Invalid,
    Unauthorized,
    Overloaded,
    Unavailable,
    Internal,
}

impl Failure {
    const ALL: [Failure; 5] =
        [Failure::Invalid, Failure::Unauthorized, Failure::Overloaded, Failure::Unavailable, Failure::Internal];

    fn name(self) -> &'static str {
        match self {
            Failure::Invalid => "invalid",
            Failure::Unauthorized => "unauthorized",
            Failure::Overloaded => "overloaded",
            Failure::Unavailable => "unavailable",
            Failure::Internal => "internal",
        }
    }

    /// What kind of failure an answer of this status is, if any.
    pub(crate) fn of(status: StatusCode) -> Option<Failure> {
        match status {
            StatusCode::UNAUTHORIZED => Some(Failure::Unauthorized),
            StatusCode::TOO_MANY_REQUESTS => Some(Failure::Overloaded),
            StatusCode::SERVICE_UNAVAILABLE => Some(Failure::Unavailable),
            status if status.is_client_error() => Some(Failure::Invalid),
            status if status.is_server_error() => Some(Failure::Internal),
            _ => None,
        }
    }
}

/// What the server counts beside the engine. Arrays of two: by [`Arm`].
#[derive(Debug)]
pub(crate) struct Metrics {
    queue: [Histogram; 2],
    first_token: [Histogram; 2],
    whole: [Histogram; 2],
    ended: [AtomicU64; ENDS.len()],
    failed: [AtomicU64; Failure::ALL.len()],
    responses: Mutex<BTreeMap<u16, u64>>, // (status)
    lines: Arc<LineCounts>,
}

impl Metrics {
    pub(crate) fn new(lines: Arc<LineCounts>) -> Arc<Self> {
        let both = |bounds| std::array::from_fn(|_| Histogram::new(bounds));
        Arc::new(Metrics {
            queue: both(WAITS),
            first_token: both(WAITS),
            whole: both(WHOLE),
            ended: Default::default(),
            failed: Default::default(),
            responses: Mutex::default(),
            lines,
        })
    }

    /// An answer's head was sent; `generates`: to a request that wanted tokens.
    pub(crate) fn answered(&self, status: StatusCode, generates: bool) {
        *self.responses.lock().unwrap_or_else(PoisonError::into_inner).entry(status.as_u16()).or_default() += 1;
        if let Some(failure) = Failure::of(status).filter(|_| generates) {
            self.failed(failure);
        }
    }

    /// A request got no answer, or not all of it.
    pub(crate) fn failed(&self, failure: Failure) {
        self.failed[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn admitted(&self, arm: Arm, after: Duration) {
        self.queue[arm as usize].observe(after);
    }

    pub(crate) fn first_token(&self, arm: Arm, after: Duration) {
        self.first_token[arm as usize].observe(after);
    }

    /// A choice has ended. How long a client waited that left says nothing about the server.
    pub(crate) fn ended(&self, arm: Arm, reason: FinishReason, after: Duration) {
        if let Some(place) = ENDS.iter().position(|end| *end == reason) {
            self.ended[place].fetch_add(1, Ordering::Relaxed);
        }
        if reason != FinishReason::Cancelled {
            self.whole[arm as usize].observe(after);
        }
    }

    /// All metrics with their values: `requests` have been taken on and are not over.
    pub(crate) fn families(&self, engine: &EngineCounters, requests: usize, model: &str) -> Vec<Family> {
        let mut families = Vec::from(at_hand(engine, requests, model));
        families.extend(tokens(engine));
        families.extend(self.latencies(engine));
        families.extend(self.ends());
        families.extend(speculation(engine));
        families.extend(steps(engine));
        families
    }

    fn latencies(&self, engine: &EngineCounters) -> [Family; 4] {
        let read = |both: &[Histogram; 2]| by_arm(both.each_ref().map(Histogram::read));
        [
            Family::histogram("time_to_first_token_seconds", "From a request's arrival to its first token.")
                .by(&["arm"])
                .times(read(&self.first_token)),
            Family::histogram(
                "inter_token_latency_seconds",
                "Between tokens. The tokens of a round share the time since the round before.",
            )
            .by(&["arm"])
            .times(by_arm(engine.inter_token.clone())),
            Family::histogram(
                "e2e_request_latency_seconds",
                "From a request's arrival to its last token, cancelled ones left out.",
            )
            .by(&["arm"])
            .times(read(&self.whole)),
            Family::histogram("request_queue_time_seconds", "From a request's submission to its admission.")
                .by(&["arm"])
                .times(read(&self.queue)),
        ]
    }

    fn ends(&self) -> [Family; 4] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines = self.lines.read();
        [
            Family::counter("request_success_total", "Choices that ended without an error, by why they did.")
                .by(&["finished_reason"])
                .each(ENDS.iter().zip(&self.ended).map(|(end, n)| (end, count(n)))),
            Family::counter("request_failures_total", "Requests for an answer that failed, by kind.")
                .by(&["kind"])
                .each(Failure::ALL.iter().zip(&self.failed).map(|(failure, n)| (failure.name(), count(n)))),
            Family::counter("http_responses_total", "Answers of all paths, by status.")
                .by(&["status"])
                .each(responses.into_iter().map(|(status, n)| (status, n as f64))),
            Family::counter(
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

fn by_arm<T>(both: [T; 2]) -> impl Iterator<Item = (Arm, T)> {
    Arm::ALL.into_iter().zip(both)
}

fn at_hand(engine: &EngineCounters, requests: usize, model: &str) -> [Family; 8] {
    let wanted = engine.pages_used.saturating_sub(engine.pages_cached);
    let usage = if engine.pages > 0 { wanted as f64 / engine.pages as f64 } else { 0.0 };
    [
        Family::gauge("build_info", "Always 1.")
            .by(&["version", "model"])
            .at(vec![env!("CARGO_PKG_VERSION").to_owned(), model.to_owned()], 1.0),
        Family::gauge("requests", "Choices that have been taken on and are not over.").is(requests as f64),
        Family::gauge("num_requests_running", "Choices that take part in steps.").is(engine.running as f64),
        Family::gauge("num_requests_waiting", "Choices that wait for their turn, or for pages.")
            .is(engine.waiting as f64),
        Family::gauge("kv_cache_usage_perc", "Share of the KV pages that running requests hold, from 0 to 1.")
            .is(usage),
        Family::gauge("kv_pages", "KV pages in all.").is(engine.pages as f64),
        Family::gauge("kv_pages_used", "KV pages that hold something.").is(engine.pages_used as f64),
        Family::gauge(
            "kv_pages_cached",
            "Of the used KV pages, those that are only kept for requests to come, and given up when they are wanted.",
        )
        .is(engine.pages_cached as f64),
    ]
}

fn tokens(engine: &EngineCounters) -> [Family; 4] {
    let prompt: u64 = engine.prompt_tokens.iter().sum();
    let both = |both: [u64; 2]| by_arm(both.map(|n| n as f64));
    [
        Family::counter("prompt_tokens_total", "Tokens of the prompts of admitted choices.")
            .by(&["arm"])
            .each(both(engine.prompt_tokens)),
        Family::counter("generation_tokens_total", "Tokens generated, counted as they are.")
            .by(&["arm"])
            .each(both(engine.generated_tokens)),
        Family::counter("prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.")
            .is(prompt as f64),
        Family::counter("prefix_cache_hits_total", "Of these, tokens that were found there.")
            .is(engine.cached_tokens as f64),
    ]
}

fn speculation(engine: &EngineCounters) -> [Family; 5] {
    let accepted: u64 = engine.accepted.iter().sum();
    [
        Family::counter("spec_decode_num_drafts_total", "Rounds with a draft.").is(engine.drafts as f64),
        Family::counter("spec_decode_num_draft_tokens_total", "Tokens drafted.").is(engine.drafted as f64),
        Family::counter("spec_decode_num_accepted_tokens_total", "Of these, tokens accepted.").is(accepted as f64),
        Family::counter(
            "spec_decode_num_accepted_tokens_per_pos_total",
            "Tokens accepted, by their place in the draft, from 0.",
        )
        .by(&["position"])
        .each(engine.accepted.iter().enumerate().map(|(place, n)| (place, *n as f64))),
        Family::counter("spec_decode_bypass_total", "Rounds without a draft, by the reason.")
            .by(&["reason"])
            .each(RoundReason::LABELS.iter().zip(engine.bypassed).map(|(reason, n)| (reason, n as f64))),
    ]
}

fn steps(engine: &EngineCounters) -> [Family; 6] {
    [
        Family::counter("steps_total", "Passes of the model, whole or in part.").is(engine.steps as f64),
        Family::counter(
            "step_seconds_total",
            "Seconds that steps took: those that read a prompt, of the others those that draft, of the others those that verify drafts, and the rest.",
        )
        .by(&["kind"])
        .each(StepKind::ALL.iter().zip(engine.step_seconds).map(|(kind, seconds)| (kind.name(), seconds))),
        Family::counter("rows_total", "Rows in all steps.").is(engine.rows as f64),
        Family::counter("layer_rows_total", "Rows times layers computed.").is(engine.layer_rows as f64),
        Family::counter("num_preemptions_total", "Times that a request gave its pages to older ones, to be computed again.")
            .is(engine.preemptions as f64),
        Family::counter("panics_total", "Steps that panicked.").is(engine.panics as f64),
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

    fn families() -> Vec<Family> {
        let backend = Box::new(fake_target(FakeOptions::default()));
        let engine = Engine::with_backend(backend, None, None, &EngineOptions::default()).expect("a thread");
        Metrics::new(Arc::default()).families(&engine.counters(), 0, "fake")
    }

    /// `UPDATE_DOCS=1 cargo test -p selfspec-server` writes the table anew.
    #[test]
    fn the_page_of_the_metrics_is_up_to_date() {
        let path = root().join("docs/metrics.md");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let (start, end) = ("<!-- metrics: written by a test -->\n", "<!-- end -->\n");
        let (before, rest) = page.split_once(start).expect("a mark");
        let (old, after) = rest.split_once(end).expect("a mark");
        let new = table(&families());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, format!("{before}{start}{new}{end}{after}")).expect("written");
        } else {
            assert_eq!(
                old, new,
                "docs/metrics.md is stale: UPDATE_DOCS=1 cargo test -p selfspec-server writes it anew"
            );
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_exist() {
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
