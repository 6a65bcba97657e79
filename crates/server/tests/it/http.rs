//! The server over a real socket, on a tiny model.

use selfspec_engine::{EngineOptions, Prompt, Request};
use selfspec_speculate::{SamplingParams, SpeculationParams};
use serde_json::{Value, json};

use crate::support::{Running, chat, chunks, opened, planted};

#[test]
fn a_chat_has_the_engines_text() {
    let running = Running::new();
    let (status, answer) = running.post("/v1/chat/completions", &chat(&json!({})));
    assert_eq!(status, 200, "{answer}");
    let engine = opened(&EngineOptions { threads: Some(1), ..EngineOptions::default() });
    let mut request = Request::new(Prompt::Chat(vec![selfspec_text::Message::new("user", "hello there")]));
    request.max_tokens = Some(12);
    request.ignore_eos = true;
    request.sampling = SamplingParams::default();
    request.speculation = SpeculationParams::off();
    let expected = engine.submit(request).expect("accepted").wait().expect("answered");
    assert_eq!(answer["choices"][0]["message"]["content"], expected.text);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["usage"]["prompt_tokens"], expected.prompt_tokens);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    assert!(answer["system_fingerprint"].as_str().is_some_and(|f| f.starts_with("fp_")));
    assert_eq!(answer["timings"]["predicted_n"], 12);

    let text = running
        .raw(
            "/v1/chat/completions",
            &chat(&json!({ "stream": true, "stream_options": { "include_usage": true } })).to_string(),
            &[],
        )
        .1;
    let chunks = chunks(&text);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let content = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect::<String>();
    assert_eq!(content, expected.text, "the same in pieces");
    let last = chunks.last().expect("usage");
    assert_eq!((last["choices"].as_array().map(Vec::len), &last["usage"]["completion_tokens"]), (Some(0), &json!(12)));
    let finish: Vec<&Value> =
        chunks.iter().map(|c| &c["choices"][0]["finish_reason"]).filter(|f| f.is_string()).collect();
    assert_eq!(finish, ["length"]);
}

#[test]
fn choices_have_own_seeds_and_speculation_changes_nothing() {
    let running = Running::new();
    let text = |more: Value| {
        let (status, answer) = running.post("/v1/chat/completions", &chat(&more));
        assert_eq!(status, 200, "{answer}");
        answer["choices"]
            .as_array()
            .expect("choices")
            .iter()
            .map(|c| c["message"]["content"].clone())
            .collect::<Vec<_>>()
    };
    let sampled = json!({ "temperature": 1.5, "seed": 7, "n": 3, "speculation": "off" });
    let off = text(sampled.clone());
    assert_eq!(off.len(), 3);
    assert_ne!(off[0], off[1]);
    for speculation in
        [json!("auto"), json!({ "drafter": "prompt-lookup", "draft_len": 3 }), json!({ "exit_layer": 2 })]
    {
        let mut with = sampled.clone();
        with["speculation"] = speculation;
        assert_eq!(text(with), off);
    }
    let next = text(json!({ "temperature": 1.5, "seed": 8 }));
    assert_eq!(next[0], off[1], "each choice has the next seed");
    let stopped = text(
        json!({ "stop": off[0].as_str().map(|t| t.chars().take(1).collect::<String>()), "temperature": 1.5, "seed": 7 }),
    );
    assert_eq!(stopped, [""]);
}

#[test]
fn log_probabilities_come_with_every_token() {
    let running = Running::new();
    let more = json!({ "logprobs": true, "top_logprobs": 2 });
    let (_, answer) = running.post("/v1/chat/completions", &chat(&more));
    let content = answer["choices"][0]["logprobs"]["content"].as_array().expect("an array").clone();
    assert_eq!(content.len(), 12);
    for token in &content {
        assert!(token["logprob"].as_f64().is_some_and(|l| l <= 0.0));
        assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(2));
        assert_eq!(token["token"], token["top_logprobs"][0]["token"], "greedy");
    }
    let mut streamed = chat(&more);
    streamed["stream"] = json!(true);
    let text = running.raw("/v1/chat/completions", &streamed.to_string(), &[]).1;
    let pieces = chunks(&text)
        .into_iter()
        .flat_map(|c| c["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default());
    assert_eq!(pieces.collect::<Vec<_>>(), content);
}

#[test]
fn a_wrong_or_unsupported_field_is_refused_by_name() {
    let running = Running::new();
    let refused = |more: Value, param: &str| {
        let (status, answer) = running.post("/v1/chat/completions", &chat(&more));
        assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{more}: {answer}");
    };
    refused(json!({ "temperature": 3 }), "temperature");
    refused(json!({ "temperature": "hot" }), "temperature");
    refused(json!({ "top_p": 0 }), "top_p");
    refused(json!({ "n": 0 }), "n");
    refused(json!({ "max_tokens": 0 }), "max_tokens");
    refused(json!({ "stop": [""] }), "stop");
    refused(json!({ "seed": 1.5 }), "seed");
    refused(json!({ "logit_bias": { "x": 1 } }), "logit_bias");
    refused(json!({ "logit_bias": { "99999999": 1 } }), "logit_bias");
    refused(json!({ "top_logprobs": 2 }), "top_logprobs");
    refused(json!({ "stream_options": {} }), "stream_options");
    refused(json!({ "tools": [{ "type": "function" }] }), "tools[0].function");
    refused(json!({ "response_format": { "type": "yaml" } }), "response_format.type");
    refused(json!({ "speculation": "fast" }), "speculation");
    refused(json!({ "speculation": { "drafter": "other" } }), "speculation.drafter");
    refused(json!({ "speculation": { "depth": 3 } }), "speculation.depth");
    refused(json!({ "messages": [] }), "messages");
    refused(json!({ "messages": [{ "role": "user" }] }), "messages[0].content");
    refused(
        json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }),
        "messages[0].content[0]",
    );
    refused(json!({ "messages": [{ "role": "user", "content": "long ".repeat(5000) }] }), "messages");
    let (status, answer) = running.post(
        "/v1/chat/completions",
        &chat(&json!({ "messages": [{ "role": "user", "content": "long ".repeat(5000) }] })),
    );
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
    let (status, answer) = running.post("/v1/chat/completions", &chat(&json!({ "model": "gpt-4" })));
    assert_eq!((status, answer["error"]["code"].as_str()), (404, Some("model_not_found")));
    for body in ["", "{", "[]", "\"x\""] {
        assert_eq!(running.send("/v1/chat/completions", body, &[]).0, 400, "{body}");
    }
    assert_eq!(
        running.post("/v1/chat/completions", &chat(&json!({ "tools": [], "unheard_of": 1, "stop": null }))).0,
        200
    );
    assert_eq!(running.get("/nowhere").0, 404);
    assert_eq!(running.get("/v1/chat/completions").0, 405);
}

#[test]
fn completions_models_and_tokens() {
    let running = Running::new();
    let (status, answer) = running.post(
        "/v1/completions",
        &json!({ "prompt": "hello", "temperature": 0, "max_tokens": 4, "logprobs": 1, "ignore_eos": true }),
    );
    assert_eq!((status, answer["object"].as_str()), (200, Some("text_completion")), "{answer}");
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"].as_array().map(Vec::len), Some(4));
    let (_, tokens) = running.post("/tokenize", &json!({ "content": "hello" }));
    let (_, again) = running.post("/v1/completions", &json!({ "prompt": running.post("/tokenize", &json!({ "content": "hello", "add_special": true })).1["tokens"], "temperature": 0, "max_tokens": 4, "ignore_eos": true }));
    assert_eq!(again["choices"][0]["text"], answer["choices"][0]["text"], "ids are as good as text");
    let (_, text) = running.post("/detokenize", &json!({ "tokens": tokens["tokens"] }));
    assert_eq!(text["content"], "hello");
    assert_eq!(running.post("/detokenize", &json!({ "tokens": [1 << 30] })).0, 400);
    let (status, long) = running.post("/v1/completions", &json!({ "prompt": "long ".repeat(5000) }));
    assert_eq!(
        (status, &long["error"]["code"], &long["error"]["param"]),
        (400, &json!("context_length_exceeded"), &json!("prompt"))
    );
    let (_, prompt) = running.post("/apply-template", &json!({ "messages": [{ "role": "user", "content": "hi" }] }));
    assert!(prompt["prompt"].as_str().is_some_and(|p| p.contains("hi")), "{prompt}");
    assert!(running.get("/v1/models").1.contains("\"tiny\""));
    assert_eq!((running.get("/v1/models/tiny").0, running.get("/v1/models/other").0), (200, 404));
    for path in ["/livez", "/readyz", "/health", "/props"] {
        assert_eq!(running.get(path).0, 200, "{path}");
    }
    assert!(running.get("/metrics").1.contains("\nselfspec_generation_tokens_total{"));
}

#[test]
fn every_path_but_the_probes_needs_a_key() {
    let running = Running::with(|options| options.api_keys = vec!["secret".to_owned(), "other".to_owned()]);
    assert_eq!((running.get("/livez").0, running.get("/readyz").0), (200, 200));
    assert_eq!((running.get("/v1/models").0, running.get("/metrics").0), (401, 401));
    let with = |name: &str, value: &str| running.send("/tokenize", "{\"content\": \"x\"}", &[(name, value)]).0;
    assert_eq!(with("authorization", "Bearer secret"), 200);
    assert_eq!(with("authorization", "bearer other"), 200);
    assert_eq!(with("x-api-key", "other"), 200);
    assert_eq!(
        (with("authorization", "Bearer wrong"), with("x-api-key", ""), with("authorization", "secret")),
        (401, 401, 401)
    );
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let running = Running::with(|options| options.body_limit = 1000);
    assert_eq!(running.send("/tokenize", &" ".repeat(2000), &[]).0, 413);
    assert_eq!(running.send("/tokenize", "{\"content\": \"x\"}", &[]).0, 200);
}

#[test]
fn requests_beyond_the_limit_are_refused_until_others_end() {
    let (engine, plan) = planted::engine(8);
    let running = Running::of(engine, |options| options.most_requests = 2);
    let body = json!({ "prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0 });
    plan.hold(true);
    std::thread::scope(|scope| {
        let _release = selfspec_testkit::faulty_backend::ReleaseOnDrop(&plan);
        let admitted = [(); 2].map(|()| scope.spawn(|| running.post("/v1/completions", &body).0));
        running.wait_for(2);
        for _ in 0..3 {
            let (status, answer) = running.post("/v1/completions", &body);
            assert_eq!((status, answer["error"]["code"].as_str()), (429, Some("overloaded")), "{answer}");
        }
        plan.hold(false);
        assert_eq!(admitted.map(|thread| thread.join().expect("answered")), [200, 200]);
    });
    running.wait_for(0);
    assert_eq!(running.post("/v1/completions", &body).0, 200, "there is room again");
}
