//! Tools and formats over a real socket, on tiny models with tokens that are whole tool calls.

use crate::support::{Running, opened_with};
use selfspec_testkit::Vocab;
use serde_json::{Value, json};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const CALL: &str = "{\"name\":\"add\",\"arguments\":{\"a\":1}}";

/// A server of a model with additional tokens.
struct ScriptedServer {
    server: Running,
    vocab: Vocab,
}

impl ScriptedServer {
    /// With these tokens besides the usual ones.
    fn with(tokens: &[(&str, i32)], style: Option<&str>) -> Self {
        let mut vocab = Vocab::byte_level();
        for (token, kind) in tokens {
            vocab.tokens.push((*token).to_owned());
            vocab.types.push(*kind);
        }
        let server = Running::of(opened_with(&vocab), |options| {
            options.tool_style = style.map(|style| style.parse().expect("a style"));
        });
        ScriptedServer { server, vocab }
    }

    fn raw(&self, path: &str, body: &Value) -> (u16, String) {
        self.server.raw(path, &body.to_string(), &[])
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.server.post(path, body)
    }

    /// The choice of an answer that consists of this token `times` times.
    fn says(&self, token: &str, times: usize, more: &Value) -> Value {
        let body = self.saying(token, times, more);
        let (status, answer) = self.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        let mut choice = answer["choices"][0].clone();
        let streamed = self.streamed(&body);
        // The ids of calls differ between two answers.
        let calls = choice["message"].get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let id = call.as_object_mut().and_then(|call| call.remove("id"));
            assert!(id.is_some_and(|id| id.as_str().is_some_and(|id| id.starts_with("call_") && id.len() > 20)));
        }
        assert_eq!(streamed["tool_calls"], choice["message"]["tool_calls"], "the same in pieces");
        assert_eq!(streamed["content"].as_str(), Some(choice["message"]["content"].as_str().unwrap_or_default()));
        assert_eq!(streamed["finish_reason"], choice["finish_reason"]);
        choice
    }

    fn saying(&self, token: &str, times: usize, more: &Value) -> Value {
        let id = self.vocab.id(token).to_string();
        chat(&json!({ "logit_bias": { id: 100 }, "max_tokens": times }), more)
    }

    /// The deltas of a stream, put together.
    fn streamed(&self, body: &Value) -> Value {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let (_, text) = self.raw("/v1/chat/completions", &body);
        let mut events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
        let mut content = String::new();
        let mut calls: Vec<Value> = Vec::new();
        let mut finish = Value::Null;
        for event in events {
            let chunk: Value = serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON");
            let choice = &chunk["choices"][0];
            content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                let index = call["index"].as_u64().expect("an index") as usize;
                let arguments = call["function"]["arguments"].as_str().expect("arguments");
                if index == calls.len() {
                    assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")), "{call}");
                    assert_eq!((call["type"].as_str(), arguments), (Some("function"), ""), "{call}");
                    calls.push(json!({ "type": "function", "function": { "name": call["function"]["name"], "arguments": "" } }));
                } else {
                    let so_far = calls[index]["function"]["arguments"].as_str().expect("a string");
                    let longer = format!("{so_far}{arguments}");
                    calls[index]["function"]["arguments"] = longer.into();
                }
            }
            if choice["finish_reason"].is_string() {
                finish = choice["finish_reason"].clone();
            }
        }
        let calls = if calls.is_empty() { Value::Null } else { calls.into() };
        json!({ "content": content, "tool_calls": calls, "finish_reason": finish })
    }
}

fn chat(some: &Value, more: &Value) -> Value {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "1+1?" }],
        "temperature": 0,
        "ignore_eos": true,
    });
    for fields in [some, more] {
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    }
    body
}

fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] });
    json!([{ "type": "function", "function": { "name": "add", "description": "Adds.", "parameters": parameters } }])
}

fn call() -> Value {
    json!({ "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } })
}

#[test]
fn calls_are_found_in_the_answer() {
    let (hermes, ends) = (format!("<tool_call>{CALL}</tool_call>"), format!("<tool_call>{CALL}</tool_call>END"));
    let other = hermes.replace("add", "sub");
    let tokens = [(hermes.as_str(), NORMAL), (ends.as_str(), NORMAL), (other.as_str(), NORMAL)];
    let running = ScriptedServer::with(&tokens, Some("hermes"));
    let with = |more: Value| {
        let mut all = json!({ "tools": tools() });
        all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        all
    };
    let choice = running.says(&ends, 1, &with(json!({ "stop": "END" })));
    let message = json!({ "role": "assistant", "content": null, "refusal": null, "tool_calls": [call()] });
    assert_eq!(choice["message"], message);
    assert_eq!(choice["finish_reason"], "tool_calls");
    let choice = running.says(&hermes, 2, &with(json!({})));
    assert_eq!(choice["message"]["tool_calls"], json!([call(), call()]));
    assert_eq!(choice["finish_reason"], "length", "it was cut, whatever it held");
    let choice = running.says(&ends, 2, &with(json!({})));
    assert_eq!(
        (&choice["message"]["content"], &choice["message"]["tool_calls"]),
        (&json!("ENDEND"), &json!([call(), call()]))
    );
    let choice = running.says(&hermes, 2, &with(json!({ "parallel_tool_calls": false })));
    assert_eq!((&choice["message"]["content"], &choice["message"]["tool_calls"]), (&json!(hermes), &json!([call()])));
    for more in [with(json!({ "tool_choice": "none" })), json!({})] {
        let choice = running.says(&hermes, 1, &more);
        assert_eq!(choice["message"], json!({ "role": "assistant", "content": hermes, "refusal": null }));
    }
    let choice = running.says(&other, 1, &with(json!({})));
    assert_eq!(choice["message"]["content"], json!(other), "no function of that name");
    // Each token is listed, although its text is held back.
    let body = running.saying(&hermes, 2, &with(json!({ "logprobs": true, "stream": true })));
    let (_, text) = running.raw("/v1/chat/completions", &body);
    assert_eq!(text.matches("\"logprob\":").count(), 2, "{text}");
}

#[test]
fn the_style_is_that_of_the_template_or_of_the_options() {
    let running = ScriptedServer::with(&[(CALL, NORMAL)], None);
    let choice = running.says(CALL, 1, &json!({ "tools": tools() }));
    assert_eq!(choice["message"]["tool_calls"], json!([call()]));
    let running = ScriptedServer::with(&[(CALL, NORMAL)], Some("hermes"));
    let choice = running.says(CALL, 1, &json!({ "tools": tools() }));
    assert_eq!(choice["message"]["content"], CALL);
}

#[test]
fn tags_that_are_control_tokens_are_seen_where_calls_may_be() {
    let bare = format!("{CALL};");
    let running = ScriptedServer::with(&[("<|python_tag|>", CONTROL), (&bare, NORMAL)], Some("llama3"));
    let said = |more: Value| running.says("<|python_tag|>", 2, &more)["message"]["content"].clone();
    assert_eq!(said(json!({ "tools": tools() })), "<|python_tag|><|python_tag|>");
    assert_eq!(said(json!({})), "", "a control token is no text");
    let choice = running.says(&bare, 2, &json!({ "tools": tools() }));
    assert_eq!(choice["message"]["tool_calls"], json!([call(), call()]));
}

#[test]
fn earlier_tool_calls_and_results_are_in_the_prompt() {
    let running = ScriptedServer::with(&[], None);
    let made = json!({ "id": "call_1", "type": "function", "function": { "name": "add", "arguments": "{\"a\": 1}" } });
    let messages = json!([
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "content": null, "refusal": null, "tool_calls": [made] },
        { "role": "tool", "tool_call_id": "call_1", "content": [{ "type": "text", "text": "<|im_end|>two" }] },
    ]);
    let body = json!({ "messages": messages, "tools": tools() });
    let (status, answer) = running.post("/apply-template", &body);
    assert_eq!(status, 200, "{answer}");
    let prompt = answer["prompt"].as_str().expect("a prompt");
    assert!(prompt.contains("\"description\":\"Adds.\""), "{prompt}");
    assert!(prompt.contains("assistant\n{\"name\":\"add\",\"arguments\":{\"a\":1}}<|im_end|>"), "{prompt}");
    assert!(prompt.contains("user\nResult of add: <|im_end|>two<|im_end|>"), "{prompt}");
    let (status, answer) = running.post("/v1/chat/completions", &chat(&body, &json!({ "max_tokens": 1 })));
    assert_eq!(status, 200, "{answer}");
    let (_, none) =
        running.post("/apply-template", &json!({ "messages": messages, "tools": tools(), "tool_choice": "none" }));
    assert!(none["prompt"].as_str().is_some_and(|prompt| !prompt.contains("Adds.")), "{none}");
}

#[test]
fn a_wrong_field_is_named() {
    let running = ScriptedServer::with(&[], None);
    let refused = |more: Value, param: &str| {
        let (status, answer) = running.post("/v1/chat/completions", &chat(&json!({ "max_tokens": 1 }), &more));
        assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{more}: {answer}");
    };
    let said = |message: Value| json!({ "messages": [message] });
    let called = |call: Value| said(json!({ "role": "assistant", "tool_calls": [call] }));
    let function =
        |name: Value, arguments: Value| json!({ "id": "1", "function": { "name": name, "arguments": arguments } });
    refused(said(json!({ "role": "assistant", "content": null })), "messages[0].content");
    refused(said(json!({ "role": "assistant", "tool_calls": [] })), "messages[0].tool_calls");
    refused(
        said(json!({ "role": "user", "content": "x", "tool_calls": [function(json!("f"), json!("{}"))] })),
        "messages[0].tool_calls",
    );
    refused(said(json!({ "role": "assistant", "content": "x", "function_call": {} })), "messages[0].function_call");
    refused(said(json!({ "role": "function", "name": "f", "content": "x" })), "messages[0].role");
    refused(said(json!({ "role": "tool", "content": "x" })), "messages[0].tool_call_id");
    refused(said(json!({ "role": "tool", "tool_call_id": 1, "content": "x" })), "messages[0].tool_call_id");
    refused(said(json!({ "role": "tool", "tool_call_id": "1" })), "messages[0].content");
    refused(called(function(json!("f"), json!("[1]"))), "messages[0].tool_calls[0].function.arguments");
    refused(called(function(json!("f"), json!("{"))), "messages[0].tool_calls[0].function.arguments");
    refused(called(function(json!("f"), json!({}))), "messages[0].tool_calls[0].function.arguments");
    refused(called(function(json!(null), json!("{}"))), "messages[0].tool_calls[0].function.name");
    refused(called(json!({ "function": { "name": "f", "arguments": "{}" } })), "messages[0].tool_calls[0].id");
    refused(called(json!({ "id": "1", "type": "custom" })), "messages[0].tool_calls[0].type");
    refused(json!({ "tools": [{ "type": "function" }] }), "tools[0].function");
    refused(json!({ "tools": tools(), "chat_template_kwargs": { "tools": [] } }), "chat_template_kwargs.tools");
    let unknown = json!({ "type": "function", "function": { "name": "other" } });
    refused(json!({ "tools": tools(), "tool_choice": unknown }), "tool_choice.function.name");
    refused(json!({ "functions": [{ "name": "f" }] }), "functions");
    refused(json!({ "prediction": "x" }), "prediction");
    refused(json!({ "prediction": { "type": "other" } }), "prediction.type");
    refused(json!({ "prediction": { "type": "content" } }), "prediction.content");
    refused(json!({ "prediction": { "type": "content", "content": [1] } }), "prediction.content[0]");
    refused(json!({ "prediction": { "type": "content", "content": "x", "more": 1 } }), "prediction.more");
    refused(json!({ "response_format": { "type": "yaml" } }), "response_format.type");
    let both = json!({ "tools": tools(), "response_format": { "type": "regex", "regex": "a" } });
    refused(both, "response_format.regex");
}

/// Two functions with short arguments.
fn small_tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "on": { "type": "boolean" }, "step": { "$ref": "#/$defs/step" } },
        "required": ["on", "step"],
        "additionalProperties": false,
        "$defs": { "step": { "enum": [1, 2, "</tool_call>"] } },
    });
    json!([
        { "type": "function", "function": { "name": "turn", "parameters": parameters } },
        { "type": "function", "function": { "name": "wait" } },
    ])
}

/// Checks a call of [`small_tools`]; its name.
fn checked(call: &Value) -> String {
    let function = &call["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().expect("a string")).expect("JSON");
    match function["name"].as_str() {
        Some("turn") => {
            assert_eq!(arguments.as_object().map(serde_json::Map::len), Some(2), "{arguments}");
            assert!(arguments["on"].is_boolean(), "{arguments}");
            assert!([json!(1), json!(2), json!("</tool_call>")].contains(&arguments["step"]), "{arguments}");
        }
        _ => assert_eq!((function["name"].as_str(), arguments), (Some("wait"), json!({}))),
    }
    function["name"].as_str().expect("a name").to_owned()
}

#[test]
fn required_calls_are_made() {
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    for (style, tags) in [("hermes", true), ("hermes", false), ("llama3", true), ("json", false)] {
        let tokens: &[(&str, i32)] = match (style, tags) {
            ("hermes", true) => &[("<tool_call>", CONTROL), ("</tool_call>", CONTROL)],
            ("llama3", true) => &[("<|python_tag|>", CONTROL)],
            _ => &[],
        };
        let running = ScriptedServer::with(tokens, Some(style));
        let mut names = Vec::new();
        for (i, choice) in [named("turn"), named("wait"), json!("required"), json!("required")].into_iter().enumerate()
        {
            let more = json!({
                "tools": small_tools(), "tool_choice": choice, "ignore_eos": false, "max_tokens": 300,
                "temperature": 1, "seed": i, "response_format": { "type": "json_object" },
            });
            let body = chat(&json!({}), &more);
            let (status, answer) = running.post("/v1/chat/completions", &body);
            assert_eq!(status, 200, "{answer}");
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "tool_calls", "{style}: {choice}");
            assert_eq!(
                (choice["message"]["content"].as_str(), choice["message"]["tool_calls"].as_array().map(Vec::len)),
                (None, Some(1))
            );
            names.push(checked(&choice["message"]["tool_calls"][0]));
            let streamed = running.streamed(&body);
            assert_eq!(streamed["finish_reason"], "tool_calls");
            assert_eq!(streamed["content"], "");
            assert_eq!(streamed["tool_calls"][0]["function"], choice["message"]["tool_calls"][0]["function"]);
        }
        assert_eq!(names[..2], ["turn", "wait"], "{style}");
    }
}

#[test]
fn several_calls_may_be_required() {
    for style in ["hermes", "llama3", "json"] {
        let running = ScriptedServer::with(&[], Some(style));
        let mut most = 0;
        for seed in 0..12 {
            let more = json!({
                "tools": small_tools(), "tool_choice": "required", "parallel_tool_calls": true, "ignore_eos": false,
                "max_tokens": 400, "temperature": 1, "seed": seed,
            });
            let (status, answer) = running.post("/v1/chat/completions", &chat(&json!({}), &more));
            assert_eq!(status, 200, "{answer}");
            let choice = &answer["choices"][0];
            if choice["finish_reason"] == "length" {
                continue; // it would have gone on
            }
            assert!(choice["message"]["content"].is_null(), "{choice}");
            let calls = choice["message"]["tool_calls"].as_array().expect("calls");
            most = most.max(calls.len());
            calls.iter().for_each(|call| drop(checked(call)));
        }
        assert!(most > 1, "{style}: no answer had several calls");
    }
}

#[test]
fn text_follows_its_format() {
    let running = ScriptedServer::with(&[], None);
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "answer", "strict": true, "schema": schema } });
    let is_answer = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(value.as_object().is_some_and(|map| map.len() == 1 && map["ok"].is_boolean()), "{text}");
    };
    let ask = |path: &str, format: &Value, more: &Value| {
        let mut body = chat(
            &json!({ "response_format": format, "ignore_eos": false, "max_tokens": 100, "temperature": 1, "seed": 3 }),
            more,
        );
        if path == "/v1/completions" {
            body["prompt"] = json!("1+1?");
        }
        let (status, answer) = running.post(path, &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        let choice = &answer["choices"][0];
        choice["text"].as_str().or_else(|| choice["message"]["content"].as_str()).expect("text").to_owned()
    };
    for path in ["/v1/chat/completions", "/v1/completions"] {
        is_answer(&ask(path, &format, &json!({})));
        let yes = ask(path, &json!({ "type": "regex", "regex": "(yes|no){2}" }), &json!({}));
        assert!(["yesyes", "yesno", "noyes", "nono"].contains(&yes.as_str()), "{yes}");
        let lark = ask(path, &json!({ "type": "lark", "lark": "start: \"a\" b\nb: \"1\" | \"2\"" }), &json!({}));
        assert!(["a1", "a2"].contains(&lark.as_str()), "{lark}");
    }
    // With optional tools, text still follows the format, also if it begins like a call.
    let named = json!({ "type": "object", "properties": { "name": { "enum": ["ox"] } }, "required": ["name"], "additionalProperties": false });
    let named = json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": named } });
    for (format, style) in [(&format, "json"), (&named, "json"), (&named, "hermes"), (&named, "llama3")] {
        let running = ScriptedServer::with(&[], Some(style));
        let (mut texts, mut calls) = (0, 0);
        for seed in 0..10 {
            let more = json!({
                "response_format": format, "tools": small_tools(), "ignore_eos": false, "max_tokens": 300, "temperature": 1, "seed": seed,
                // The first letters of the format's texts, which calls do not begin with.
                "logit_bias": {
                    running.vocab.id("o").to_string(): if seed % 2 == 0 { 30 } else { -30 },
                    running.vocab.id("{").to_string(): if seed % 2 == 0 { 30 } else { -30 },
                },
            });
            let (status, answer) = running.post("/v1/chat/completions", &chat(&json!({}), &more));
            assert_eq!(status, 200, "{answer}");
            let message = &answer["choices"][0]["message"];
            match (message["content"].as_str(), message["tool_calls"].as_array()) {
                (Some("{\"name\": \"ox\"}"), None) => texts += 1,
                (Some(text), None) => {
                    is_answer(text);
                    texts += 1;
                }
                (None, Some(made)) => {
                    made.iter().for_each(|call| drop(checked(call)));
                    calls += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((texts, calls), (5, 5), "{style}");
    }
}

#[test]
fn a_malformed_format_is_refused_by_name() {
    let running = ScriptedServer::with(&[], None);
    let refused = |more: Value, param: &str| {
        for path in ["/v1/chat/completions", "/v1/completions"] {
            let mut body = chat(&json!({ "max_tokens": 1, "ignore_eos": false }), &more);
            if path == "/v1/completions" {
                body["prompt"] = json!("x");
            }
            let (status, answer) = running.post(path, &body);
            assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{more}: {answer}");
        }
    };
    let schema = |schema: Value| json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": schema } } });
    refused(schema(json!({ "type": "unheard of" })), "response_format.json_schema.schema");
    refused(schema(json!({ "$ref": "#/$defs/missing" })), "response_format.json_schema.schema");
    refused(schema(json!(false)), "response_format.json_schema.schema");
    refused(json!({ "response_format": { "type": "regex", "regex": "(" } }), "response_format.regex");
    refused(json!({ "response_format": { "type": "lark", "lark": "start: missing" } }), "response_format.lark");
    let format = json!({ "type": "json_object" });
    refused(json!({ "response_format": format, "ignore_eos": true }), "ignore_eos");
    let bad = json!([{ "type": "function", "function": { "name": "f", "parameters": { "properties": { "a": { "type": 3 } } } } }]);
    let (status, answer) = running.post(
        "/v1/chat/completions",
        &chat(&json!({ "ignore_eos": false }), &json!({ "tools": bad, "tool_choice": "required" })),
    );
    assert_eq!((status, answer["error"]["param"].as_str()), (400, Some("tools")), "{answer}");
}

#[test]
fn a_prediction_changes_the_speed_only() {
    let running = ScriptedServer::with(&[], None);
    let body = |more: &Value| {
        let drafter = json!({ "drafter": "prompt-lookup", "draft_len": 4, "max_gain_loss": 1 });
        let bias = json!({ running.vocab.id("x").to_string(): 100 });
        chat(&json!({ "max_tokens": 40, "speculation": drafter, "logit_bias": bias }), more)
    };
    let (_, without) = running.post("/v1/chat/completions", &body(&json!({})));
    let text = &without["choices"][0]["message"]["content"];
    let details =
        |answer: &Value, which: &str| answer["usage"]["completion_tokens_details"][which].as_u64().expect("a number");
    assert_eq!(details(&without, "accepted_prediction_tokens"), 0);
    for content in [json!(text), json!([{ "type": "text", "text": text }])] {
        let more = json!({ "prediction": { "type": "content", "content": content } });
        let (status, with) = running.post("/v1/chat/completions", &body(&more));
        assert_eq!(status, 200, "{with}");
        assert_eq!(with["choices"][0]["message"]["content"], *text);
        assert!(
            details(&with, "accepted_prediction_tokens") + details(&with, "rejected_prediction_tokens") > 0,
            "{with}"
        );
    }
}
