//! `/v1/responses`: items, events and refusals.

use serde_json::{Value, json};

use crate::support::Running;
use crate::support::scripted::{R1, ScriptedModel, with};

const CALL: &str = "{\"name\":\"add\",\"arguments\":{\"a\":1}}";

fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"] });
    json!([{ "type": "function", "name": "add", "parameters": parameters, "strict": true }])
}

/// The events of a stream. Each is numbered and named as its data says.
fn events(text: &str) -> Vec<Value> {
    let read = |(i, event): (usize, &str)| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(data["type"], name.strip_prefix("event: ").expect("a name"));
        assert_eq!(data["sequence_number"], i);
        data
    };
    text.split_terminator("\n\n").enumerate().map(read).collect()
}

/// A response without what differs between two answers.
fn compared(response: &Value) -> Value {
    let mut response = response.clone();
    for field in ["id", "created_at", "timings"] {
        response.as_object_mut().expect("an object").remove(field);
    }
    response["usage"]["input_tokens_details"] = Value::Null;
    for token in response["tokens"].as_array_mut().into_iter().flatten() {
        token["source"] = Value::Null;
    }
    for item in response["output"].as_array_mut().expect("items") {
        for id in ["id", "call_id"] {
            if item[id].is_string() {
                item[id] = "some".into();
            }
        }
    }
    response
}

/// The response to a body, which is the same whole, streamed, and without speculation. The deltas
/// of the stream are the texts of its items.
fn respond(server: &Running, body: &Value) -> (Value, Vec<Value>) {
    let mut answers = Vec::new();
    for speculation in [json!("off"), json!({ "drafter": "layer-skip", "exit_layer": 2, "draft_len": 4 })] {
        let mut body = body.clone();
        body["speculation"] = speculation;
        let (status, whole) = server.post("/v1/responses", &body);
        assert_eq!(status, 200, "{whole}");
        body["stream"] = json!(true);
        let (_, text) = server.raw("/v1/responses", &body.to_string(), &[]);
        let events = events(&text);
        let last = events.last().expect("events");
        assert_eq!(last["type"], json!(format!("response.{}", whole["status"].as_str().expect("a status"))));
        assert_eq!(compared(&last["response"]), compared(&whole));
        for (index, item) in whole["output"].as_array().expect("items").iter().enumerate() {
            let of = |event: &&Value| event["output_index"] == index && event["delta"].is_string();
            let deltas: String = events.iter().filter(of).map(|event| event["delta"].as_str().unwrap_or("")).collect();
            let text = item["arguments"].as_str().or_else(|| item["content"][0]["text"].as_str());
            assert_eq!(Some(deltas.as_str()), text);
        }
        answers.push((whole, events));
    }
    assert_eq!(compared(&answers[0].0), compared(&answers[1].0), "speculation changes nothing");
    answers.swap_remove(0)
}

#[test]
fn items_come_in_the_order_of_the_api() {
    let model = ScriptedModel::new(&["weigh", "yes", CALL], Some(R1));
    let body = with(model.script(&["weigh", "</think>", "yes"]), &json!({ "input": "1+1?" }));
    let (response, events) = respond(&model.server, &body);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let item = |text: &'static str| {
        vec![
            "response.output_item.added".to_owned(),
            "response.content_part.added".to_owned(),
            format!("{text}.delta"),
            format!("{text}.done"),
            "response.content_part.done".to_owned(),
            "response.output_item.done".to_owned(),
        ]
    };
    let mut expected = vec!["response.created".to_owned(), "response.in_progress".to_owned()];
    expected.extend(item("response.reasoning_text"));
    expected.extend(item("response.output_text"));
    expected.push("response.completed".to_owned());
    assert_eq!(kinds, expected);
    let output = &response["output"];
    assert_eq!((&output[0]["type"], &output[0]["content"][0]["text"]), (&json!("reasoning"), &json!("weigh")));
    assert_eq!((&output[1]["type"], &output[1]["content"][0]["text"]), (&json!("message"), &json!("yes")));
    assert_eq!(response["usage"]["output_tokens"], 4);
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
    // Calls, chosen and forced.
    let more = json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "1+1?" }] }], "tools": tools() });
    let (response, events) = respond(&model.server, &with(model.script(&["</think>", CALL]), &more));
    assert!(events.iter().any(|event| event["type"] == "response.function_call_arguments.done"));
    let call = &response["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &call["arguments"]),
        (&json!("function_call"), &json!("add"), &json!("{\"a\":1}"))
    );
    assert!(call["call_id"].as_str().is_some_and(|id| id.starts_with("call_")));
    for choice in [json!("required"), json!({ "type": "function", "name": "add" })] {
        let more = json!({ "input": "1+1?", "tools": tools(), "tool_choice": choice, "max_output_tokens": 400 });
        let (response, _) = respond(&model.server, &with(model.script(&["</think>", "yes"]), &more));
        assert_eq!(response["output"][0]["name"], "add", "{response}");
    }
    // The limit, log-probabilities, tokens, and a format.
    let more = json!({
        "input": "1+1?", "max_output_tokens": 2, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
        "return_tokens": true,
    });
    let (response, _) = respond(&model.server, &with(model.script(&["</think>", "yes", "weigh"]), &more));
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(response["output"][0]["content"][0]["logprobs"].as_array().map(Vec::len), Some(1), "{response}");
    assert_eq!(response["tokens"].as_array().map(Vec::len), Some(2));
    let schema = json!({ "type": "object", "properties": { "ok": { "enum": [true] } }, "required": ["ok"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "name": "a", "schema": schema, "strict": true });
    let more = json!({ "input": "1+1?", "text": { "format": format }, "max_output_tokens": 100 });
    let (response, _) = respond(&model.server, &with(model.script(&["weigh", "</think>"]), &more));
    assert_eq!(response["output"][1]["content"][0]["text"], "{\"ok\": true}");
}

/// The same conversation as items and as messages has the same prompt.
#[test]
fn items_are_the_messages_of_a_conversation() {
    let server = Running::new();
    let items = json!([
        { "type": "message", "role": "developer", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "input_text", "text": "1+" }, { "type": "input_text", "text": "1?" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] },
        { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
          "content": [{ "type": "output_text", "text": "I add.", "annotations": [] }] },
        { "type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{\"a\": 1}" },
        { "type": "function_call_output", "call_id": "call_1", "output": "2" },
        { "role": "assistant", "content": "2" },
        { "role": "user", "content": "Sure?" },
    ]);
    let function = json!({ "name": "add", "arguments": "{\"a\": 1}" });
    let messages = json!([
        { "role": "system", "content": "Calculate." },
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "content": "I add.", "reasoning_content": "hm",
          "tool_calls": [{ "id": "call_1", "type": "function", "function": function }] },
        { "role": "tool", "tool_call_id": "call_1", "content": "2" },
        { "role": "assistant", "content": "2" },
        { "role": "user", "content": "Sure?" },
    ]);
    let with = |field: &str, value: &Value, most: &str| json!({ field: value, most: 5, "temperature": 0, "instructions": "Calculate.", "return_tokens": true });
    let (status, response) = server.post("/v1/responses", &with("input", &items, "max_output_tokens"));
    assert_eq!(status, 200, "{response}");
    let (_, chat) = server.post("/v1/chat/completions", &with("messages", &messages, "max_tokens"));
    assert_eq!(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    let ids = |tokens: &Value| tokens.as_array().expect("tokens").iter().map(|t| t["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&response["tokens"]), ids(&chat["choices"][0]["tokens"]));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let server = Running::new();
    let refused = |more: Value, param: &str| {
        let base = json!({ "input": "a", "max_output_tokens": 1 });
        let body = with(base.as_object().expect("an object").clone(), &more);
        let (status, answer) = server.post("/v1/responses", &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{more}: {answer}");
    };
    refused(json!({ "input": null }), "input");
    refused(json!({ "input": [] }), "input");
    refused(json!({ "input": [{ "type": "item_reference", "id": "msg_1" }] }), "input[0].type");
    refused(json!({ "input": [{ "type": "web_search_call" }] }), "input[0].type");
    refused(json!({ "input": [{ "role": "user", "content": [{ "type": "input_image" }] }] }), "input[0].content[0]");
    refused(json!({ "input": [{ "role": "tool", "content": "a" }] }), "input[0].role");
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "[]" });
    refused(json!({ "input": [call] }), "input[0].arguments");
    refused(json!({ "previous_response_id": "resp_1" }), "previous_response_id");
    refused(json!({ "conversation": "conv_1" }), "conversation");
    refused(json!({ "background": true }), "background");
    refused(json!({ "truncation": "auto" }), "truncation");
    refused(json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type");
    refused(json!({ "tools": [{ "type": "function", "name": "a b" }] }), "tools[0].name");
    refused(json!({ "tools": tools(), "tool_choice": { "type": "function", "name": "no" } }), "tool_choice.name");
    refused(json!({ "tools": tools(), "tool_choice": { "type": "mcp" } }), "tool_choice.type");
    refused(json!({ "text": { "format": { "type": "json_schema", "schema": {} } } }), "text.format.name");
    refused(json!({ "text": { "format": { "type": "yaml" } } }), "text.format.type");
    refused(json!({ "text": { "verbosity": "none" } }), "text.verbosity");
    refused(json!({ "tools": "add" }), "tools");
    refused(json!({ "stream_options": true }), "stream_options");
    refused(json!({ "reasoning": { "effort": "much" } }), "reasoning.effort");
    refused(json!({ "reasoning": { "summary": "detailed" } }), "reasoning.summary");
    refused(json!({ "max_output_tokens": 0 }), "max_output_tokens");
    refused(json!({ "include": ["all"] }), "include");
    let accepted = json!({
        "input": "a", "max_output_tokens": 1, "store": true, "metadata": { "a": "b" }, "service_tier": "auto",
        "include": ["reasoning.encrypted_content"], "truncation": "disabled", "reasoning": { "summary": "auto" },
        "stream_options": { "include_obfuscation": false }, "max_tool_calls": 3, "text": { "verbosity": "low" },
    });
    let (status, answer) = server.post("/v1/responses", &accepted);
    assert_eq!((status, &answer["store"], &answer["metadata"]["a"]), (200, &json!(false), &json!("b")), "{answer}");
}
