//! Requests that wait for their grammars: all are answered, whoever asks at the same time.

use std::sync::atomic::Ordering;

use crate::support::{Running, completion, planted};
use serde_json::{Value, json};

/// A request whose text is forced to be `{"n": NUMBER}`.
fn constrained(number: usize) -> Value {
    let properties = json!({ "n": { "const": number } });
    with_schema(
        &json!({ "type": "object", "properties": properties, "required": ["n"], "additionalProperties": false }),
    )
}

fn with_schema(schema: &Value) -> Value {
    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } });
    completion(&json!({ "response_format": format, "max_tokens": 40, "ignore_eos": false }))
}

#[test]
fn sixty_four_grammars_at_once_are_all_answered() {
    let running = Running::new();
    for different in [1, 64, 5] {
        std::thread::scope(|scope| {
            for client in 0..64 {
                let running = &running;
                scope.spawn(move || {
                    let number = 1000 * different + client % different;
                    let (status, answer) = running.post("/v1/completions", &constrained(number));
                    assert_eq!(status, 200, "{answer}");
                    assert_eq!(answer["choices"][0]["text"], format!("{{\"n\": {number}}}"), "{answer}");
                });
            }
        });
    }
    running.wait_for(0);
    running.pages_are_free();
}

#[test]
fn clients_that_leave_while_they_wait_leave_nothing_behind() {
    let running = Running::new();
    for i in 0..60 {
        let enumeration: Vec<String> = (0..400).map(|n| format!("{i} and {n}")).collect();
        let ask = with_schema(&json!({ "enum": enumeration })).to_string();
        drop(running.wire(&running.bytes("POST /v1/completions", &ask)));
    }
    let (status, answer) = running.post("/v1/completions", &constrained(7));
    assert_eq!(status, 200, "{answer}");
    running.wait_for(0);
    running.pages_are_free();
}

#[test]
fn a_full_server_refuses_grammars_with_429_and_faults_of_fields_with_400() {
    let (engine, plan) = planted::engine(8);
    let running = Running::of(engine, |options| options.most_requests = 1);
    let before = plan.steps.load(Ordering::SeqCst);
    plan.hold(true);
    let first =
        running.wire(&running.bytes("POST /v1/completions", &json!({ "prompt": [1], "max_tokens": 9 }).to_string()));
    plan.wait_for_step(before);
    let ask = json!({ "prompt": [1], "max_tokens": 9, "ignore_eos": true });
    let (status, answer) = running.post("/v1/completions", &ask);
    assert_eq!(
        (status, &answer["error"]["type"], &answer["error"]["code"]),
        (429, &json!("overloaded_error"), &json!("overloaded")),
        "{answer}"
    );
    let retry = running.headers("/v1/completions", &ask.to_string(), &[]);
    assert_eq!(retry.get("retry-after").map(|seconds| seconds.as_bytes()), Some(&b"1"[..]));
    let wrong = |more: Value, field: &str| {
        let mut ask = ask.clone();
        ask.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let (status, answer) = running.post("/v1/completions", &ask);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{answer}");
    };
    wrong(
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": { "extends": {} } } } }),
        "response_format.json_schema.schema",
    );
    wrong(json!({ "response_format": { "type": "json_object" } }), "ignore_eos");
    wrong(json!({ "prompt": vec![1; 100_000] }), "prompt");
    plan.hold(false);
    drop(first);
    running.wait_for(0);
}
