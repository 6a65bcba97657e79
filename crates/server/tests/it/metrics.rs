//! `/metrics` over a real socket: its format, and its values after known requests.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Running, completion, planted};
use selfspec_engine::EngineOptions;
use serde_json::json;

/// Reads the text format strictly: value by name and labels.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = "";
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(!help.is_empty() && helped.insert(name), "{line}");
            current = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current, "the type follows the help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none(), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let endings = ["_bucket", "_sum", "_count"];
            let ending = endings.iter().find(|e| types[current] == "histogram" && name == format!("{current}{e}"));
            assert!(ending.is_some() || (name == current && types[current] != "histogram"), "{line}");
            assert!(
                name.starts_with("selfspec_")
                    && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            let labels = &series[name.len()..];
            if !labels.is_empty() {
                let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}')).expect("braces");
                for pair in inner.split(',') {
                    let (label, value) = pair.split_once('=').expect("a label");
                    assert!(!label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
                    assert!(value.len() >= 2 && value.starts_with('"') && value.ends_with('"'), "{line}");
                }
            }
            let value: f64 = value.parse().expect("a number");
            let in_range = if name.ends_with("_perc") { (0.0..=1.0).contains(&value) } else { value >= 0.0 };
            let is_time = name.contains("_seconds") && !name.ends_with("_bucket") && !name.ends_with("_count");
            let is_whole = value.fract() == 0.0 || is_time || name.ends_with("_perc");
            assert!(in_range && value.is_finite() && is_whole, "{line}");
            assert!(values.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    assert_eq!(types.len(), helped.len());
    for (name, _) in types.iter().filter(|(_, kind)| **kind == "histogram") {
        histogram(name, text, &values);
    }
    values
}

/// The bounds and the counts of each series' buckets ascend, up to its count.
fn histogram(name: &str, text: &str, values: &BTreeMap<String, f64>) {
    let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with(&format!("{name}_bucket"))) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (labels, end) = series.split_once("le=\"").expect("an end");
        let end = end.trim_end_matches("\"}");
        let end = if end == "+Inf" { f64::INFINITY } else { end.parse().expect("a number") };
        let value: f64 = value.parse().expect("a number");
        let (before, held) = last.insert(labels.to_owned(), (end, value)).unwrap_or((-1.0, 0.0));
        assert!(end > before && value >= held, "{line}");
    }
    assert!(!last.is_empty(), "{name}");
    for (labels, (end, held)) in last {
        assert_eq!(end, f64::INFINITY);
        let labels = labels.trim_start_matches(&format!("{name}_bucket")).trim_end_matches(',').to_owned() + "}";
        assert_eq!(values[&format!("{name}_count{labels}")], held, "{name}{labels}");
        assert!(values.contains_key(&format!("{name}_sum{labels}")));
    }
}

fn metrics(running: &Running) -> BTreeMap<String, f64> {
    parse(&running.get("/metrics").1)
}

/// The metrics once no request is queued or running.
fn at_rest(running: &Running) -> BTreeMap<String, f64> {
    loop {
        let values = metrics(running);
        let busy = ["num_requests_running", "num_requests_waiting", "requests"];
        if busy.iter().all(|name| values[&format!("selfspec_{name}")] == 0.0) {
            return values;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_strict_reader_refuses_malformed_text() {
    let of = |samples: &str| format!("# HELP selfspec_a_total A.\n# TYPE selfspec_a_total counter\n{samples}\n");
    assert_eq!(parse(&of("selfspec_a_total{b=\"c\"} 1"))["selfspec_a_total{b=\"c\"}"], 1.0);
    for bad in [
        "selfspec_a_total NaN",
        "selfspec_a_total -1",
        "selfspec_a_total inf",
        "selfspec_a_total 0.5",
        "selfspec_a_total 1\nselfspec_a_total 1",
        "selfspec_b_total 1",
        "selfspec_a_total{b=c} 1",
        "selfspec_a_total{b=\"c\" 1",
        "# TYPE selfspec_a_total counter",
    ] {
        assert!(std::panic::catch_unwind(|| parse(&of(bad))).is_err(), "{bad}");
    }
}

#[test]
fn the_counts_are_those_of_the_requests() {
    let running = Running::new();
    let first = metrics(&running);
    assert!(first["selfspec_kv_pages"] > 0.0 && first["selfspec_kv_pages_used"] == 0.0, "known before any request");
    // With the whole loss budget, drafting does not depend on measured times.
    let drafting = json!({ "drafter": "prompt-lookup", "draft_len": 3, "max_gain_loss": 1 });
    let (_, plain) = running.post("/v1/completions", &completion(&json!({ "speculation": "off", "max_tokens": 8 })));
    let (_, drafted) =
        running.post("/v1/completions", &completion(&json!({ "speculation": drafting, "max_tokens": 40, "n": 2 })));
    assert_eq!(drafted["usage"]["completion_tokens"], 80, "{drafted}");
    assert_eq!(running.post("/v1/completions", &json!({ "prompt": 7 })).0, 400);
    assert_eq!(running.get("/nowhere").0, 404);
    let values = at_rest(&running);
    for (series, before) in
        first.iter().filter(|(series, _)| series.split('{').next().is_some_and(|n| n.ends_with("_total")))
    {
        assert!(values[series] >= *before, "{series} is a counter");
    }
    let value = |name: &str| values[&format!("selfspec_{name}")];
    let prompt = plain["usage"]["prompt_tokens"].as_f64().expect("a number");
    assert_eq!(value("prompt_tokens_total{arm=\"plain\"}"), prompt);
    assert_eq!(value("prompt_tokens_total{arm=\"speculation\"}"), 2.0 * prompt);
    assert_eq!(value("prefix_cache_queries_total"), 3.0 * prompt);
    let cached: f64 = [&plain, &drafted]
        .iter()
        .map(|a| a["usage"]["prompt_tokens_details"]["cached_tokens"].as_f64().expect("a number"))
        .sum();
    assert!(value("prefix_cache_hits_total") >= cached);
    assert_eq!(value("generation_tokens_total{arm=\"plain\"}"), 8.0);
    assert_eq!(value("generation_tokens_total{arm=\"speculation\"}"), 80.0);
    assert_eq!(value("request_success_total{finished_reason=\"length\"}"), 3.0);
    assert_eq!(value("request_failures_total{kind=\"invalid\"}"), 1.0, "an unknown path is not a generation request");
    assert_eq!(value("http_responses_total{status=\"404\"}"), 1.0);
    assert_eq!(value("http_responses_total{status=\"400\"}"), 1.0);
    for (arm, choices, tokens) in [("plain", 1.0, 8.0), ("speculation", 2.0, 80.0)] {
        for name in ["time_to_first_token", "e2e_request_latency", "request_queue_time"] {
            assert_eq!(value(&format!("{name}_seconds_count{{arm=\"{arm}\"}}")), choices, "{name} {arm}");
        }
        assert_eq!(value(&format!("inter_token_latency_seconds_count{{arm=\"{arm}\"}}")), tokens - choices, "{arm}");
        let whole = value(&format!("e2e_request_latency_seconds_sum{{arm=\"{arm}\"}}"));
        assert!(value(&format!("inter_token_latency_seconds_sum{{arm=\"{arm}\"}}")) < whole, "{arm}");
    }
    let (drafts, tokens, accepted) = (
        value("spec_decode_num_drafts_total"),
        value("spec_decode_num_draft_tokens_total"),
        value("spec_decode_num_accepted_tokens_total"),
    );
    let told = drafted["timings"]["draft_n"].as_f64().expect("a number");
    assert!(drafts > 0.0 && tokens == told && accepted <= tokens, "{drafts} {tokens} {told} {accepted}");
    assert_eq!(drafted["timings"]["draft_n_accepted"].as_f64(), Some(accepted));
    let by_place: Vec<f64> = (0..8)
        .map(|place| value(&format!("spec_decode_num_accepted_tokens_per_pos_total{{position=\"{place}\"}}")))
        .collect();
    assert_eq!(by_place.iter().sum::<f64>(), accepted);
    assert!(by_place.windows(2).all(|two| two[0] >= two[1]), "{by_place:?}");
    assert_eq!(value("spec_decode_bypass_total{reason=\"off\"}"), 7.0, "each token but the prompt's own");
    assert_eq!(value("spec_decode_bypass_total{reason=\"prompt\"}"), 1.0, "the others found it in the prefix cache");
    for kind in ["prefill", "verify", "plain"] {
        assert!(value(&format!("step_seconds_total{{kind=\"{kind}\"}}")) > 0.0, "{kind}");
    }
    assert_eq!(value("step_seconds_total{kind=\"draft\"}"), 0.0, "nothing was drafted by layers");
    assert!(value("rows_total") >= value("steps_total") && value("layer_rows_total") > value("rows_total"));
    assert_eq!(value("kv_cache_usage_perc"), 0.0);
    assert_eq!(value("kv_pages_used"), value("kv_pages_cached"), "what is left is the prefix cache's");
    assert!(value("kv_pages_used") > 0.0);
}

#[test]
fn layer_skip_has_draft_steps() {
    let running = Running::new();
    let layers = json!({ "speculation": { "exit_layer": 2, "draft_len": 2, "max_gain_loss": 1 }, "max_tokens": 30 });
    assert_eq!(running.post("/v1/completions", &completion(&layers)).0, 200);
    let values = at_rest(&running);
    for kind in ["draft", "verify"] {
        assert!(values[&format!("selfspec_step_seconds_total{{kind=\"{kind}\"}}")] > 0.0, "{kind}");
    }
}

#[test]
fn without_a_prefix_cache_no_page_stays_in_use() {
    let running = Running::on(&EngineOptions { prefix_cache: false, ..Running::engine() }, |_| {});
    assert_eq!(running.post("/v1/completions", &completion(&json!({ "max_tokens": 40 }))).0, 200);
    let values = at_rest(&running);
    assert!(values["selfspec_generation_tokens_total{arm=\"speculation\"}"] > 0.0);
    assert_eq!((values["selfspec_kv_pages_used"], values["selfspec_kv_pages_cached"]), (0.0, 0.0));
}

#[test]
fn tokens_of_a_client_that_leaves_are_counted() {
    let (engine, plan) = planted::engine(8);
    let running = Running::of(engine, |_| {});
    let body =
        json!({ "prompt": [1, 2, 3], "max_tokens": 1000, "stream": true, "speculation": "off", "return_tokens": true });
    plan.hold_after(3);
    {
        let _release = selfspec_testkit::faulty_backend::ReleaseOnDrop(&plan);
        running.begin("/v1/completions", &body.to_string());
        running.wait_for(0);
    }
    running.wait_for_metric("request_success_total{finished_reason=\"cancelled\"} 1");
    let values = at_rest(&running);
    assert_eq!(values["selfspec_request_success_total{finished_reason=\"cancelled\"}"], 1.0);
    assert!(values["selfspec_generation_tokens_total{arm=\"plain\"}"] > 0.0);
    assert_eq!(values["selfspec_time_to_first_token_seconds_count{arm=\"plain\"}"], 1.0);
    assert_eq!(values["selfspec_e2e_request_latency_seconds_count{arm=\"plain\"}"], 0.0, "cancelled ones are left out");
}

#[test]
fn requests_have_ids_and_arms() {
    let running = Running::with(|options| options.speculate_share = Some(0.5));
    let arm_of = |id: &str, more: &serde_json::Value| {
        let headers = running.headers("/v1/completions", &completion(more).to_string(), &[("x-request-id", id)]);
        assert_eq!(headers["x-request-id"], id, "the answer has it too");
        headers["x-selfspec-arm"].to_str().expect("text").to_owned()
    };
    let none = json!({});
    let arms: Vec<String> = (0..24).map(|i| arm_of(&format!("id-{i}"), &none)).collect();
    for (i, arm) in arms.iter().enumerate().take(6) {
        assert_eq!(arm_of(&format!("id-{i}"), &json!({ "stream": true })), *arm, "an id keeps its arm");
    }
    let drafting = arms.iter().filter(|arm| *arm == "speculation").count();
    assert!((4..=20).contains(&drafting) && arms.iter().all(|arm| arm == "speculation" || arm == "plain"), "{arms:?}");
    let plain = arms.iter().position(|arm| arm == "plain").expect("some are");
    assert_eq!(
        arm_of(&format!("id-{plain}"), &json!({ "speculation": "auto" })),
        "speculation",
        "a request may choose"
    );
    let own = running.headers("/v1/models", "", &[]);
    assert!(own["x-request-id"].to_str().is_ok_and(|id| id.starts_with("req-")), "every answer has an id: {own:?}");
    let (status, refused) = running.send("/v1/completions", &completion(&none).to_string(), &[("x-request-id", "a b")]);
    assert_eq!((status, refused["error"]["param"].as_str()), (400, Some("X-Request-Id")), "{refused}");
    let (all, none) = (1.0, 0.0);
    for (share, arm) in [(all, "speculation"), (none, "plain")] {
        let running = Running::with(|options| options.speculate_share = Some(share));
        let headers = running.headers("/v1/completions", &completion(&json!({})).to_string(), &[]);
        assert_eq!(headers["x-selfspec-arm"], arm);
    }
}
