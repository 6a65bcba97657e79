//! Reasoning before the answer, on tiny models with the templates of models that reason.

use serde_json::{Value, json};

use crate::support::scripted::{QWEN3, R1, ScriptedModel, with};

/// The tokens besides the usual ones. The byte of a line break is spelled Ċ.
const TOKENS: [&str; 5] = ["ĊĊ", "Ċ", "weigh", "STOP", "yes"];

fn chat(model: &ScriptedModel, script: &[&str], more: &Value) -> Value {
    let body = with(model.script(script), &json!({ "messages": [{ "role": "user", "content": "1+1?" }] }));
    with(body.as_object().expect("an object").clone(), more)
}

/// The choice and the usage of an answer, which is the same whole and streamed, and with and
/// without speculation.
fn answer(model: &ScriptedModel, body: &Value) -> (Value, Value) {
    let mut answers = Vec::new();
    for speculation in [json!("off"), json!({ "drafter": "layer-skip", "exit_layer": 2, "draft_len": 4 })] {
        let mut body = body.clone();
        body["speculation"] = speculation;
        let (status, answer) = model.server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        let message = &answer["choices"][0]["message"];
        let text = |field: &str| message[field].as_str().unwrap_or_default().to_owned();
        let whole = (text("reasoning_content"), text("content"), answer["choices"][0]["finish_reason"].clone());
        body["stream"] = json!(true);
        let (_, stream) = model.server.raw("/v1/chat/completions", &body.to_string(), &[]);
        let mut streamed = (String::new(), String::new(), Value::Null);
        for chunk in crate::support::chunks(&stream) {
            let choice = &chunk["choices"][0];
            streamed.0.push_str(choice["delta"]["reasoning_content"].as_str().unwrap_or_default());
            assert!(streamed.1.is_empty() || choice["delta"]["reasoning_content"].is_null(), "reasoning comes first");
            streamed.1.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            if choice["finish_reason"].is_string() {
                streamed.2 = choice["finish_reason"].clone();
            }
        }
        assert_eq!(streamed, whole, "{body}");
        let usage = &answer["usage"];
        let counts = json!([usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]]);
        answers.push((answer["choices"][0].clone(), counts));
    }
    assert_eq!(answers[0], answers[1], "speculation changes nothing");
    answers.swap_remove(0)
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let model = ScriptedModel::new(&TOKENS, Some(QWEN3));
    let script = ["<think>", "Ċ", "weigh", "</think>", "ĊĊ", "yes"];
    let (choice, counts) = answer(&model, &chat(&model, &script, &json!({})));
    let message = json!({ "role": "assistant", "content": "yes", "refusal": null, "reasoning_content": "weigh" });
    assert_eq!((&choice["message"], &choice["finish_reason"]), (&message, &json!("stop")));
    assert_eq!(counts, json!([7, 4]), "the marks are tokens of the reasoning, and the end is one of the answer");
    // Without words there is no reasoning to tell of.
    let (choice, counts) = answer(&model, &chat(&model, &["<think>", "ĊĊ", "</think>", "yes"], &json!({})));
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": "yes", "refusal": null }));
    assert_eq!(counts, json!([5, 3]));
    // An answer without reasoning, in which a mark is text.
    let (choice, counts) = answer(&model, &chat(&model, &["ĊĊ", "yes", "<think>", "weigh"], &json!({})));
    assert_eq!(choice["message"]["content"], "\n\nyes<think>weigh");
    assert_eq!(counts, json!([5, 0]));
    // Reasoning that is cut.
    let (choice, _) = answer(&model, &chat(&model, &script, &json!({ "max_tokens": 3 })));
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")));
    assert_eq!(choice["message"]["reasoning_content"], "weigh");
}

#[test]
fn a_template_may_open_or_close_the_reasoning() {
    let model = ScriptedModel::new(&TOKENS, Some(R1));
    let (choice, counts) = answer(&model, &chat(&model, &["weigh", "</think>", "ĊĊ", "yes"], &json!({})));
    assert_eq!(
        (&choice["message"]["reasoning_content"], &choice["message"]["content"]),
        (&json!("weigh"), &json!("yes"))
    );
    assert_eq!(counts, json!([5, 2]));
    let model = ScriptedModel::new(&TOKENS, Some(QWEN3));
    for off in [
        json!({ "chat_template_kwargs": { "enable_thinking": false } }),
        json!({ "reasoning_effort": "none" }),
        json!({ "enable_thinking": false }),
    ] {
        let (choice, counts) = answer(&model, &chat(&model, &["weigh", "yes"], &off));
        assert_eq!(choice["message"]["content"], "weighyes", "{off}: the template closed the reasoning");
        assert_eq!(counts, json!([3, 0]));
    }
    // A mark in the user's words says nothing of the answer.
    let asked = json!({ "messages": [{ "role": "user", "content": "<think>" }] });
    let (choice, _) = answer(&model, &chat(&model, &["yes"], &asked));
    assert_eq!(choice["message"]["content"], "yes");
    let model = ScriptedModel::new(&TOKENS, None);
    let (choice, _) = answer(&model, &chat(&model, &["<think>", "weigh"], &json!({})));
    assert_eq!(choice["message"]["content"], "<think>weigh", "a template without marks: a model that does not reason");
}

#[test]
fn stop_strings_formats_and_calls_are_those_of_the_answer() {
    let call = "{\"name\":\"add\",\"arguments\":{\"a\":1}}";
    let tokens = [&TOKENS[..], &[call]].concat();
    let model = ScriptedModel::new(&tokens, Some(QWEN3));
    let script = ["<think>", "STOP", "weigh", "</think>", "yes", "STOP"];
    let body = chat(&model, &["<think>", "STOP", "weigh", "</think>", "yes"], &json!({ "stop": "STOP" }));
    let (choice, _) = answer(&model, &body);
    assert_eq!(choice["message"]["reasoning_content"], "STOPweigh");
    assert_eq!(choice["message"]["content"], "yes");
    let body = chat(&model, &["yes", "STOP", "weigh"], &json!({ "stop": "STOP" }));
    assert_eq!(answer(&model, &body).0["message"]["content"], "yes");
    // The end of the text is no way out of the reasoning, and the answer follows the format.
    let format = json!({ "response_format": { "type": "regex", "regex": "(no|yes)!" }, "max_tokens": 60 });
    for (model, script) in
        [(&model, &script[..5]), (&ScriptedModel::new(&TOKENS, Some(R1)), &["STOP", "weigh", "</think>", "yes"][..])]
    {
        let (choice, _) = answer(model, &chat(model, script, &format));
        assert_eq!(choice["message"]["reasoning_content"], "STOPweigh");
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("yes!"), &json!("stop")));
    }
    let (choice, counts) = answer(&model, &chat(&model, &["yes", "weigh"], &format));
    assert_eq!((&choice["message"]["content"], &counts[1]), (&json!("yes!"), &json!(0)), "it need not reason");
    // A call in the reasoning is words.
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let tools = json!([{ "type": "function", "function": { "name": "add", "parameters": parameters } }]);
    let body = chat(&model, &["<think>", call, "</think>", "yes"], &json!({ "tools": tools }));
    let (choice, _) = answer(&model, &body);
    assert_eq!(choice["message"]["reasoning_content"], call);
    assert_eq!((&choice["message"]["tool_calls"], &choice["message"]["content"]), (&Value::Null, &json!("yes")));
}

#[test]
fn earlier_reasoning_and_the_effort_reach_the_template() {
    let model = ScriptedModel::new(&TOKENS, Some(QWEN3));
    for field in ["reasoning_content", "reasoning"] {
        let messages = json!([
            { "role": "user", "content": "1+1?" },
            { "role": "assistant", "content": "2", field: "one more" },
            { "role": "user", "content": "sure?" },
        ]);
        let (status, answer) =
            model.server.post("/apply-template", &json!({ "messages": messages, "reasoning_effort": "low" }));
        assert_eq!(status, 200, "{answer}");
        let prompt = answer["prompt"].as_str().expect("a prompt");
        assert!(prompt.contains("<think>\none more\n</think>\n\n2<|im_end|>"), "{prompt}");
        assert!(prompt.contains("effort low\n"), "{prompt}");
    }
    let body = json!({ "messages": [{ "role": "user", "content": "a" }], "reasoning_effort": "much" });
    let (status, answer) = model.server.post("/v1/chat/completions", &body);
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("reasoning_effort")));
    // A raw completion stays raw text.
    let body = with(model.script(&["<think>", "weigh", "</think>", "yes"]), &json!({ "prompt": "a" }));
    let (_, answer) = model.server.post("/v1/completions", &body);
    assert_eq!(answer["choices"][0]["text"], "<think>weigh</think>yes");
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}
