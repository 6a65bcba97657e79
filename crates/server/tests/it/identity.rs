//! An answer depends on its request alone: not on speculation, streaming, or other requests.

use std::sync::Barrier;

use crate::support::Running;
use selfspec_engine::EngineOptions;
use serde_json::{Map, Value, json};

/// What must not differ between two answers.
#[derive(Debug, PartialEq)]
struct ComparedAnswer {
    text: String,
    ids: Vec<u64>,
    finish: Value,
    logprobs: Vec<Value>,
    usage: Value,
}

fn logprobs_of(choice: &Value) -> Vec<Value> {
    choice["logprobs"]["content"].as_array().cloned().unwrap_or_default()
}

fn ids_of(choice: &Value) -> Vec<u64> {
    choice["tokens"].as_array().into_iter().flatten().filter_map(|token| token["id"].as_u64()).collect()
}

/// Usage without the cached tokens.
fn usage_of(answer: &Value) -> Value {
    json!([answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"], answer["usage"]["total_tokens"]])
}

/// Asks for a chat with these fields, as a stream or not.
fn ask(running: &Running, fields: &Map<String, Value>, speculation: &Value, stream: bool) -> ComparedAnswer {
    let mut body = fields.clone();
    body.insert("return_tokens".to_owned(), json!(true));
    body.insert("speculation".to_owned(), speculation.clone());
    if stream {
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    let body = Value::Object(body).to_string();
    let (status, text) = running.raw("/v1/chat/completions", &body, &[]);
    assert_eq!(status, 200, "{body}: {text}");
    if !stream {
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let choice = &answer["choices"][0];
        return ComparedAnswer {
            text: choice["message"]["content"].as_str().unwrap_or_default().to_owned(),
            ids: ids_of(choice),
            finish: choice["finish_reason"].clone(),
            logprobs: logprobs_of(choice),
            usage: usage_of(&answer),
        };
    }
    let mut answer = ComparedAnswer {
        text: String::new(),
        ids: Vec::new(),
        finish: Value::Null,
        logprobs: Vec::new(),
        usage: Value::Null,
    };
    for chunk in crate::support::chunks(&text) {
        let choice = &chunk["choices"][0];
        answer.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        answer.ids.extend(ids_of(choice));
        answer.logprobs.extend(logprobs_of(choice));
        if !choice["finish_reason"].is_null() {
            answer.finish = choice["finish_reason"].clone();
        }
        if chunk["usage"].is_object() {
            answer.usage = usage_of(&chunk);
        }
    }
    answer
}

fn request(prompt: &str, more: &Value) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("messages".to_owned(), json!([{ "role": "user", "content": prompt }]));
    body.insert("max_tokens".to_owned(), json!(40));
    body.insert("temperature".to_owned(), json!(0));
    body.extend(more.as_object().expect("an object").clone());
    body
}

fn speculations() -> Vec<Value> {
    let skip = |exit: usize, k: usize| json!({ "drafter": "layer-skip", "exit_layer": exit, "draft_len": k });
    let lookup = |k: usize| json!({ "drafter": "prompt-lookup", "draft_len": k });
    vec![json!("auto"), skip(1, 1), skip(1, 4), skip(2, 8), lookup(2), lookup(8), json!({ "max_gain_loss": 1.0 })]
}

#[test]
fn answers_do_not_depend_on_speculation_or_streaming() {
    let running = Running::new();
    let seeded = json!({ "temperature": 0.9, "seed": 5 });
    let first = ask(&running, &request("one two one two one two", &seeded), &json!("off"), false);
    let (letter, forbidden) = (first.text.chars().nth(9).expect("a text").to_string(), first.ids[2].to_string());
    let cases = [
        json!({}),
        seeded,
        json!({ "max_tokens": 1 }),
        json!({ "max_tokens": 2 }),
        json!({ "max_tokens": 4 }),
        json!({ "max_tokens": 5, "logprobs": true, "top_logprobs": 3 }),
        json!({ "ignore_eos": true, "logprobs": true }),
        json!({ "temperature": 0.9, "seed": 5, "stop": letter, "logprobs": true }),
        json!({ "temperature": 0.9, "seed": 5, "logit_bias": { forbidden: -100 } }),
        json!({ "repetition_penalty": 1.2, "presence_penalty": 0.8, "frequency_penalty": 0.8, "ignore_eos": true }),
        json!({ "temperature": 1.0, "seed": -3, "min_p": 0.9 }),
        json!({ "temperature": 1.3, "seed": 8, "top_k": 5, "top_p": 0.8, "frequency_penalty": 0.5 }),
        json!({ "response_format": { "type": "regex", "regex": "(ab|c){4,30}!" }, "temperature": 1, "seed": 3, "logprobs": true }),
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": {
            "type": "object", "properties": { "ok": { "type": "boolean" }, "word": { "enum": ["some", "other"] } },
            "required": ["ok", "word"], "additionalProperties": false } } } }),
        json!({ "prediction": { "type": "content", "content": first.text }, "temperature": 0.9, "seed": 5 }),
    ];
    for case in &cases {
        let fields = request("one two one two one two", case);
        let plain = ask(&running, &fields, &json!("off"), false);
        assert_eq!(plain.usage[1], plain.ids.len(), "{case}: usage is what was delivered");
        assert!(case["logprobs"].is_null() || plain.logprobs.len() == plain.ids.len(), "{case}");
        assert_eq!(ask(&running, &fields, &json!("off"), true), plain, "{case}, streamed");
        for speculation in speculations() {
            for stream in [false, true] {
                let got = ask(&running, &fields, &speculation, stream);
                assert_eq!(got, plain, "{case}, {speculation}, stream {stream}");
            }
        }
    }
}

/// Thirty-two concurrent requests, on a cache for a few of them, have the same answers as alone.
#[test]
fn answers_do_not_depend_on_other_requests() {
    let alone = Running::new();
    let small = EngineOptions { kv_bytes: Some(320 * 480), prefix_cache: true, ..Running::engine() };
    let crowded = Running::on(&small, |options| options.most_requests = 64);
    let fields = |i: usize| {
        let prompt = format!("request {i}: {}", "tell me more of it ".repeat(i % 5));
        let sampling = if i.is_multiple_of(2) { json!({}) } else { json!({ "temperature": 1.0, "seed": i }) };
        let mut fields = request(&prompt, &sampling);
        fields.insert("max_tokens".to_owned(), json!(20 + 7 * (i % 9)));
        fields.insert("ignore_eos".to_owned(), json!(true));
        fields
    };
    let expected: Vec<ComparedAnswer> = (0..32).map(|i| ask(&alone, &fields(i), &json!("off"), false)).collect();
    let speculations = speculations();
    // Once more if a busy machine ran the requests one after the other.
    while crowded.engine.counters().preemptions == 0 {
        let start = Barrier::new(32);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|i| {
                    let (crowded, start) = (&crowded, &start);
                    let (speculation, fields) = (&speculations[i % speculations.len()], fields(i));
                    scope.spawn(move || {
                        start.wait();
                        ask(crowded, &fields, speculation, i % 3 == 0)
                    })
                })
                .collect();
            for (i, (got, expected)) in threads.into_iter().zip(&expected).enumerate() {
                assert_eq!(&got.join().expect("answered"), expected, "request {i}");
            }
        });
    }
}
