//! The record of finished requests: its fields, and the texts that it leaves out.

use std::path::Path;

use crate::support::{Running, completion, planted};
use selfspec_server::RecordOptions;
use serde_json::{Value, json};

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A server that records, without or with prompts.
fn recording(path: &Path, prompts: bool) -> Running {
    let record = RecordOptions { path: path.to_owned(), prompts };
    Running::with(|options| (options.record, options.speculate_share) = (Some(record), Some(0.5)))
}

#[test]
fn every_finished_request_has_a_line_without_texts() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.jsonl");
    let running = recording(&path, false);
    let secret = json!({ "prompt": "the secret words", "stop": ["hidden"], "user": "somebody", "n": 2, "temperature": 0.7, "seed": 3 });
    let (_, answer) = running.send("/v1/completions", &completion(&secret).to_string(), &[("x-request-id", "first")]);
    let lookup =
        json!({ "speculation": { "drafter": "prompt-lookup", "draft_len": 3, "max_gain_loss": 1 }, "max_tokens": 30 });
    let (_, drafted) = running.post("/v1/completions", &completion(&lookup));
    assert_eq!(running.post("/v1/completions", &json!({ "prompt": 7 })).0, 400, "a refused request has no line");
    drop(running);
    let lines = lines(&path);
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    let text_of = |line: &Value, field: &str| line[field].as_str().map(str::to_owned).expect("a string");
    let time = |line: &Value| line["time"].as_f64().expect("a number");
    assert_eq!((text_of(first, "id"), text_of(first, "path")), ("first".to_owned(), "/v1/completions".to_owned()));
    assert_eq!(first["arm_by"], "share");
    assert_eq!((&second["arm"], &second["arm_by"]), (&json!("speculation"), &json!("request")));
    assert!(text_of(second, "id").starts_with("req-") && time(second) >= time(first) && time(first) > 1.7e9);
    assert_eq!(first["prompt_tokens"], answer["usage"]["prompt_tokens"]);
    let parameters = &first["parameters"];
    assert_eq!(parameters["temperature"], 0.7);
    assert_eq!((&parameters["seed"], &parameters["n"], &parameters["stop"]), (&json!(3), &json!(2), &json!(1)));
    let choices = |line: &Value| line["choices"].as_array().cloned().expect("choices");
    assert_eq!((choices(first).len(), choices(second).len()), (2, 1));
    for choice in choices(first).iter().chain(&choices(second)) {
        assert_eq!(choice["finish_reason"], "length");
        assert!(["error", "text", "token_ids"].iter().all(|field| choice.get(field).is_none()), "{choice}");
        let number = |field: &str| choice[field].as_f64().expect("a number");
        let gaps = choice["gaps"].as_array().expect("gaps");
        let sum = |place: usize| gaps.iter().map(|gap| gap[place].as_f64().expect("a number")).sum::<f64>();
        assert!(sum(1) < number("completion_tokens") && sum(1) > 0.0, "all but the first round: {choice}");
        let (queue, first, whole) = (number("queue_s"), number("ttft_s"), number("e2e_s"));
        assert!(queue <= first && first <= whole, "{choice}");
        assert!(sum(0) / 1e3 <= whole, "{choice}");
    }
    let choice = &second["choices"][0];
    assert_eq!(choice["completion_tokens"], 30);
    assert!(choice["drafted"].as_u64().is_some_and(|drafted| drafted > 0), "{choice}");
    assert_eq!(choice["drafted"], drafted["timings"]["draft_n"]);
    assert_eq!(choice["accepted"], drafted["timings"]["draft_n_accepted"]);
    let text = std::fs::read_to_string(&path).expect("there");
    let told = ["secret", "hidden", "somebody", "prompt\"", "\"text", "token_ids"];
    assert!(told.iter().all(|word| !text.contains(word)), "{text}");
}

#[test]
fn with_prompts_a_line_holds_what_a_replay_needs() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.jsonl");
    let running = recording(&path, true);
    let body = completion(&json!({ "logprobs": 0 }));
    let (_, answer) = running.post("/v1/completions", &body);
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 3, "stream": true });
    running.post("/v1/chat/completions", &chat);
    drop(running);
    let lines = lines(&path);
    assert_eq!(lines[0]["request"], body);
    assert_eq!(lines[0]["choices"][0]["text"], answer["choices"][0]["text"]);
    assert_eq!(lines[0]["choices"][0]["token_ids"].as_array().map(Vec::len), Some(4));
    assert_eq!((lines[1]["path"].as_str(), &lines[1]["request"]), (Some("/v1/chat/completions"), &chat));
    assert_eq!(lines[1]["parameters"]["stream"], true);
}

#[test]
fn a_cancelled_request_has_a_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.jsonl");
    let (engine, plan) = planted::engine(8);
    let record = RecordOptions { path: path.clone(), prompts: false };
    let running = Running::of(engine, |options| options.record = Some(record));
    let body = json!({ "prompt": [1, 2, 3], "max_tokens": 1000, "stream": true, "return_tokens": true });
    plan.hold_after(3);
    {
        let _release = selfspec_testkit::faulty_backend::ReleaseOnDrop(&plan);
        running.begin("/v1/completions", &body.to_string());
        running.wait_for(0);
    }
    running.wait_for_metric("record_lines_total{outcome=\"written\"} 1");
    let lines = lines(&path);
    assert_eq!((lines.len(), lines[0]["choices"][0]["finish_reason"].as_str()), (1, Some("cancelled")));
    assert!(lines[0]["choices"][0]["completion_tokens"].as_u64().is_some_and(|tokens| tokens > 0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_lines_and_fails_no_request() {
    let running = recording(Path::new("/dev/full"), true);
    for _ in 0..3 {
        assert_eq!(running.post("/v1/completions", &completion(&json!({}))).0, 200);
    }
    running.wait_for_metric("record_lines_total{outcome=\"failed\"} 3");
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_before_the_server_runs() {
    use selfspec_server::{ServeError, ServeOptions, Server};
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("no/such/folder/record.jsonl");
    let mut options = ServeOptions::new("127.0.0.1:0".parse().expect("an address"), "tiny");
    options.record = Some(RecordOptions { path: path.clone(), prompts: false });
    let error = Server::bind(crate::support::opened(&Running::engine()), options).err().expect("refused");
    assert!(matches!(&error, ServeError::Record { path: named, .. } if *named == path), "{error}");
    assert!(error.to_string().starts_with("cannot record to "), "{error}");
}
