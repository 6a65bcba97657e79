//! `return_tokens` and `timings_per_token`: the sources of tokens, and timings so far.

use crate::support::{Running, completion};
use serde_json::{Value, json};

const PATHS: [&str; 2] = ["/v1/completions", "/v1/chat/completions"];

/// A request for either path.
fn body(path: &str, more: &Value) -> Value {
    let mut body = completion(more);
    if path == PATHS[1]
        && let Some(map) = body.as_object_mut()
    {
        let prompt = map.remove("prompt");
        map.insert("messages".to_owned(), json!([{ "role": "user", "content": prompt }]));
    }
    body
}

fn chunks(running: &Running, path: &str, more: &Value) -> Vec<Value> {
    let mut body = body(path, more);
    body["stream"] = json!(true);
    let (status, text) = running.send(path, &body.to_string(), &[]);
    assert_eq!(status, 200, "{text}");
    let text = text.as_str().expect("events");
    let events = text.split_terminator("\n\n").filter_map(|e| e.strip_prefix("data: ")).filter(|e| *e != "[DONE]");
    events.map(|e| serde_json::from_str(e).expect("JSON")).collect()
}

fn content(choice: &Value) -> &str {
    let places = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]];
    places.into_iter().find_map(Value::as_str).unwrap_or_default()
}

fn texts(tokens: &[Value]) -> String {
    tokens.iter().map(|t| t["text"].as_str().expect("a text")).collect()
}

fn count(tokens: &[Value], source: &str) -> u64 {
    tokens.iter().filter(|t| t["source"] == source).count() as u64
}

#[test]
fn tokens_have_sources_streamed_or_not() {
    // One token all the time, so that copied drafts are accepted.
    let always = json!({ "33": 100 });
    let drafting = json!({ "drafter": "prompt-lookup", "draft_len": 3, "max_gain_loss": 1 });
    let mut seen = std::collections::BTreeSet::new();
    for path in PATHS {
        for (speculation, bias) in
            [(json!("off"), json!({})), (drafting.clone(), json!({})), (drafting.clone(), always.clone())]
        {
            let running = Running::new(); // an engine remembers which drafts paid
            let more =
                json!({ "max_tokens": 60, "return_tokens": true, "speculation": speculation, "logit_bias": bias });
            let (status, answer) = running.post(path, &body(path, &more));
            assert_eq!(status, 200, "{answer}");
            let choice = &answer["choices"][0];
            let tokens = choice["tokens"].as_array().expect("tokens").clone();
            assert_eq!(tokens.len(), 60);
            assert_eq!(texts(&tokens), content(choice), "the tokens' texts are the text");
            assert_eq!(count(&tokens, "draft"), answer["timings"]["draft_n_accepted"], "{path}");
            if speculation == "off" {
                assert_eq!(count(&tokens, "plain"), 60);
                assert_eq!(answer["timings"]["rounds"], 60);
            } else if bias == always {
                assert!(answer["timings"]["rounds"].as_u64().is_some_and(|rounds| rounds < 60), "{answer}");
            }
            seen.extend(tokens.iter().filter_map(|t| t["source"].as_str().map(str::to_owned)));

            let mut streamed = Vec::new();
            for chunk in chunks(&running, path, &more) {
                let choice = &chunk["choices"][0];
                let own = choice["tokens"].as_array().cloned().unwrap_or_default();
                assert_eq!(texts(&own), content(choice), "chunk by chunk");
                streamed.extend(own);
            }
            // Drafts depend on measured times; tokens do not.
            let ids = |tokens: &[Value]| tokens.iter().map(|t| t["id"].clone()).collect::<Vec<_>>();
            assert_eq!(ids(&streamed), ids(&tokens), "{path}");
        }
    }
    assert!(["draft", "bonus", "plain"].iter().all(|source| seen.contains(*source)), "{seen:?}");
    let plain = Running::new().post(PATHS[0], &body(PATHS[0], &json!({}))).1;
    assert!(plain["choices"][0].get("tokens").is_none(), "only on request");
}

#[test]
fn every_chunk_has_timings_and_they_grow() {
    let running = Running::new();
    for path in PATHS {
        let options = json!({ "include_usage": true });
        let more = json!({ "max_tokens": 40, "timings_per_token": true, "stream_options": options, "n": 2 });
        let chunks = chunks(&running, path, &more);
        let (last, rest) = chunks.split_last().expect("chunks");
        let number = |chunk: &Value, name: &str| chunk["timings"][name].as_f64().expect("a number");
        assert_eq!((number(last, "predicted_n"), &last["choices"]), (80.0, &json!([])));
        let mut before = vec![0.0; 6];
        let names = ["prompt_ms", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted", "rounds"];
        let mut with_text = 0;
        for chunk in rest.iter().chain([last]) {
            if chunk["choices"]
                .get(0)
                .is_none_or(|choice| content(choice).is_empty() && choice["finish_reason"].is_null())
                && chunk != last
            {
                continue;
            }
            with_text += 1;
            let keys = |chunk: &Value| {
                let timings = chunk["timings"].as_object().expect("an object");
                timings.keys().filter(|key| *key != "drafters").cloned().collect::<Vec<_>>()
            };
            assert_eq!(keys(chunk), keys(last));
            assert_eq!(chunk["timings"].get("drafters").is_some(), chunk == last, "at the end only");
            let now: Vec<f64> = names.iter().map(|name| number(chunk, name)).collect();
            assert!(before.iter().zip(&now).all(|(before, now)| before <= now), "{before:?} {now:?}");
            before = now;
        }
        assert!(with_text > 2);
    }
    let without = chunks(&running, PATHS[0], &json!({}));
    assert!(without.iter().all(|chunk| chunk.get("timings").is_none()), "only on request");
    let (status, answer) = running.post(PATHS[0], &body(PATHS[0], &json!({ "timings_per_token": true })));
    assert_eq!((status, answer["timings"]["predicted_n"].as_u64()), (200, Some(4)), "{answer}");
}

#[test]
fn both_fields_must_be_booleans() {
    let running = Running::new();
    for path in PATHS {
        for field in ["return_tokens", "timings_per_token"] {
            for wrong in [json!(1), json!("true"), json!([])] {
                let (status, answer) = running.post(path, &body(path, &json!({ field: wrong })));
                assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(field)), "{answer}");
            }
        }
    }
}

/// Offsets continue from chunk to chunk as in a whole answer.
#[test]
fn completions_have_the_offset_of_each_token() {
    let running = Running::new();
    let more = json!({ "logprobs": 1, "max_tokens": 20 });
    let whole = running.post("/v1/completions", &completion(&more)).1["choices"][0]["logprobs"].take();
    let (tokens, offsets) =
        (whole["tokens"].as_array().expect("tokens"), whole["text_offset"].as_array().expect("offsets"));
    let mut at = 0;
    for (token, offset) in tokens.iter().zip(offsets) {
        assert_eq!(offset.as_u64(), Some(at));
        at += token.as_str().expect("a text").chars().count() as u64;
    }
    assert_eq!((tokens.len(), offsets.len()), (20, 20));
    let chunks = chunks(&running, "/v1/completions", &more);
    let streamed = chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["text_offset"].as_array()).flatten();
    assert!(streamed.eq(offsets));
}
