//! `/v1/messages`: blocks, events, errors and refusals.

use serde_json::{Value, json};

use crate::support::Running;
use crate::support::scripted::{R1, ScriptedModel, with};

const CALL: &str = "{\"name\":\"add\",\"arguments\":{\"a\":1}}";

fn tools() -> Value {
    let schema = json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"] });
    json!([{ "name": "add", "description": "Adds.", "input_schema": schema }])
}

/// The events of a stream, each named as its data says.
fn events(text: &str) -> Vec<Value> {
    let read = |event: &str| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(data["type"], name.strip_prefix("event: ").expect("a name"));
        data
    };
    text.split_terminator("\n\n").map(read).collect()
}

/// The message that the events of a stream put together.
fn joined(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut input = String::new();
    for event in events {
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().expect("a type") {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().expect("blocks");
                assert_eq!(content.len(), at);
                content.push(event["content_block"].clone());
                input.clear();
            }
            "content_block_delta" => {
                let (delta, block) = (&event["delta"], &mut message["content"][at]);
                for (kind, field) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
                    if delta["type"] == kind {
                        let text =
                            format!("{}{}", block[field].as_str().unwrap_or(""), delta[field].as_str().unwrap_or(""));
                        block[field] = text.into();
                    }
                }
                input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if message["content"][at]["type"] == "tool_use" => {
                message["content"][at]["input"] = serde_json::from_str(&input).expect("JSON");
            }
            "message_delta" => {
                for field in ["stop_reason", "stop_sequence"] {
                    message[field] = event["delta"][field].clone();
                }
                for field in ["usage", "tokens"] {
                    message[field] = event[field].clone();
                }
            }
            _ => {}
        }
    }
    message
}

/// A message without what differs between two answers.
fn compared(message: &Value) -> Value {
    let mut message = message.clone();
    let usage = &message["usage"];
    let prompt = usage["input_tokens"].as_u64().unwrap_or(0) + usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    message["usage"] = json!([prompt, usage["output_tokens"]]);
    for field in ["id", "timings"] {
        message.as_object_mut().expect("an object").remove(field);
    }
    for token in message["tokens"].as_array_mut().into_iter().flatten() {
        token["source"] = Value::Null;
    }
    for block in message["content"].as_array_mut().expect("blocks") {
        if block["id"].is_string() {
            assert!(block["id"].as_str().is_some_and(|id| id.starts_with("toolu_")));
            block["id"] = "some".into();
        }
    }
    message
}

/// The message to a body, which is the same whole, streamed, and without speculation.
fn answer(server: &Running, body: &Value) -> (Value, Vec<Value>) {
    let mut answers = Vec::new();
    for speculation in [json!("off"), json!({ "drafter": "layer-skip", "exit_layer": 2, "draft_len": 4 })] {
        let mut body = body.clone();
        body["speculation"] = speculation;
        body["return_tokens"] = json!(true);
        let (status, whole) = server.post("/v1/messages", &body);
        assert_eq!(status, 200, "{whole}");
        body["stream"] = json!(true);
        let (_, text) = server.raw("/v1/messages", &body.to_string(), &[]);
        let events = events(&text);
        assert_eq!(events.last().expect("events")["type"], "message_stop");
        assert_eq!(compared(&joined(&events)), compared(&whole));
        answers.push((whole, events));
    }
    assert_eq!(compared(&answers[0].0), compared(&answers[1].0), "speculation changes nothing");
    answers.swap_remove(0)
}

fn asked(more: &Value) -> Value {
    let base = json!({ "max_tokens": 400, "messages": [{ "role": "user", "content": "1+1?" }] });
    with(base.as_object().expect("an object").clone(), more)
}

#[test]
fn blocks_come_in_the_order_of_the_api() {
    let model = ScriptedModel::new(&["weigh", "yes", "STOP", CALL], Some(R1));
    let body = with(model.script(&["weigh", "</think>", "yes"]), &asked(&json!({})));
    let (message, events) = answer(&model.server, &body);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected = [&["message_start", "ping"][..], &block, &block, &["message_delta", "message_stop"]].concat();
    assert_eq!(kinds, expected);
    assert_eq!(
        message["content"],
        json!([{ "type": "thinking", "thinking": "weigh", "signature": "" }, { "type": "text", "text": "yes" }])
    );
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert!(events[0]["message"]["usage"]["input_tokens"].as_u64() > Some(0));
    let stops = asked(&json!({ "stop_sequences": ["no", "STOP"] }));
    let (message, _) = answer(&model.server, &with(model.script(&["</think>", "yes", "STOP", "weigh"]), &stops));
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("stop_sequence"), &json!("STOP")));
    assert_eq!(message["content"][0]["text"], "yes");
    let (message, _) =
        answer(&model.server, &with(model.script(&["</think>", "yes", "weigh"]), &asked(&json!({ "max_tokens": 2 }))));
    assert_eq!(message["stop_reason"], "max_tokens");
    // Calls, chosen and forced.
    let call = json!({ "type": "tool_use", "name": "add", "input": { "a": 1 } });
    let of = |message: &Value| {
        let mut block = message["content"][0].clone();
        block.as_object_mut().expect("a block").remove("id");
        block
    };
    let chosen = with(model.script(&["</think>", CALL]), &asked(&json!({ "tools": tools() })));
    let (message, _) = answer(&model.server, &chosen);
    assert_eq!((of(&message), &message["stop_reason"]), (call, &json!("tool_use")));
    for choice in
        [json!({ "type": "any", "disable_parallel_tool_use": true }), json!({ "type": "tool", "name": "add" })]
    {
        let forced = asked(&json!({ "tools": tools(), "tool_choice": choice }));
        let (message, _) = answer(&model.server, &with(model.script(&["</think>", "yes"]), &forced));
        assert_eq!(of(&message)["name"], "add");
    }
    let schema = json!({ "type": "object", "properties": { "ok": { "enum": [true] } }, "required": ["ok"], "additionalProperties": false });
    let format = asked(&json!({ "output_config": { "format": { "type": "json_schema", "schema": schema } } }));
    let (message, _) = answer(&model.server, &with(model.script(&["</think>"]), &format));
    assert_eq!(message["content"][0]["text"], "{\"ok\": true}");
}

/// The same conversation as blocks and as OpenAI's messages has the same prompt.
#[test]
fn blocks_are_the_messages_of_a_conversation() {
    let server = Running::new();
    let blocks = json!([
        { "role": "user", "content": [{ "type": "text", "text": "1+1?", "cache_control": { "type": "ephemeral" } }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "hm", "signature": "" },
            { "type": "text", "text": "I add." },
            { "type": "tool_use", "id": "toolu_1", "name": "add", "input": { "a": 1 } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "toolu_1", "content": [{ "type": "text", "text": "2" }], "is_error": true },
            { "type": "text", "text": "Sure?" },
        ] },
    ]);
    let function = json!({ "name": "add", "arguments": "{\"a\": 1}" });
    let messages = json!([
        { "role": "system", "content": "Calculate." },
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "content": "I add.", "reasoning_content": "hm",
          "tool_calls": [{ "id": "toolu_1", "type": "function", "function": function }] },
        { "role": "tool", "tool_call_id": "toolu_1", "content": "Error: 2" },
        { "role": "user", "content": "Sure?" },
    ]);
    let ours = json!({ "messages": messages, "max_tokens": 5, "temperature": 0, "return_tokens": true });
    let (_, chat) = server.post("/v1/chat/completions", &ours);
    let mut body = json!({ "messages": blocks, "max_tokens": 5, "temperature": 0, "return_tokens": true, "system": [{ "type": "text", "text": "Calculate." }] });
    let (status, message) = server.post("/v1/messages", &body);
    assert_eq!(status, 200, "{message}");
    let ids = |tokens: &Value| tokens.as_array().expect("tokens").iter().map(|t| t["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&message["tokens"]), ids(&chat["choices"][0]["tokens"]));
    let (status, count) = server.post("/v1/messages/count_tokens", &body);
    assert_eq!((status, &count), (200, &json!({ "input_tokens": chat["usage"]["prompt_tokens"] })));
    body["messages"][0]["content"] = "another".into();
    assert_ne!(server.post("/v1/messages/count_tokens", &body).1, count);
}

#[test]
fn errors_have_the_shape_of_the_dialect() {
    let server = Running::with(|options| options.api_keys = vec!["key".to_owned()]);
    let refused = |more: Value, start: &str| {
        let body = asked(&more).to_string();
        let (status, answer) =
            server.send("/v1/messages", &body, &[("x-api-key", "key"), ("anthropic-version", "2023-06-01")]);
        let error = &answer["error"];
        assert_eq!((status, &answer["type"], &error["type"]), (400, &json!("error"), &json!("invalid_request_error")));
        assert!(error["message"].as_str().is_some_and(|why| why.starts_with(start)), "{more}: {answer}");
    };
    let content = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    refused(json!({ "messages": null }), "messages: missing");
    refused(content(json!({ "type": "image", "source": {} })), "messages[0].content[0]: ");
    refused(content(json!({ "type": "tool_result" })), "messages[0].content[0].tool_use_id: ");
    refused(json!({ "messages": [{ "role": "assistant", "content": "a" }] }), "messages[0]: ");
    refused(json!({ "messages": [{ "role": "system", "content": "a" }] }), "messages[0].role: ");
    refused(json!({ "system": 1 }), "system: ");
    refused(json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }), "tools[0].type: ");
    refused(json!({ "tools": [{ "name": "a b", "input_schema": {} }] }), "tools[0].name: ");
    refused(json!({ "tools": [{ "name": "a", "input_schema": 1 }] }), "tools[0].input_schema: ");
    refused(json!({ "tools": tools(), "tool_choice": { "type": "tool", "name": "no" } }), "tool_choice.name: ");
    refused(json!({ "tool_choice": { "type": "some" } }), "tool_choice.type: ");
    refused(json!({ "stop_sequences": "a" }), "stop_sequences: ");
    refused(json!({ "thinking": { "type": "on" } }), "thinking.type: ");
    refused(json!({ "thinking": { "type": "enabled", "display": "omitted" } }), "thinking.display: ");
    refused(json!({ "output_config": { "format": { "type": "text" } } }), "output_config.format.type: ");
    refused(json!({ "container": "c" }), "container: ");
    refused(json!({ "top_k": -5 }), "top_k: ");
    let (status, answer) = server.send("/v1/messages", &asked(&json!({})).to_string(), &[]);
    assert_eq!((status, &answer["error"]["type"]), (401, &json!("authentication_error")));
    let unknown = asked(&json!({ "model": "claude" })).to_string();
    let (status, answer) = server.send("/v1/messages", &unknown, &[("x-api-key", "key")]);
    assert_eq!((status, &answer["error"]["type"]), (404, &json!("not_found_error")));
    let (status, answer) = server.send("/v1/chat/completions", "{}", &[("x-api-key", "key")]);
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages")), "{answer}");
}
