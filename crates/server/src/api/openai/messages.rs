//! The fields `messages`, `chat_template_kwargs` and `reasoning_effort`: a conversation, and
//! variables of the chat template.

use std::collections::HashMap;

use selfspec_text::{Message, ToolCall};
use serde_json::{Map, Value};

use crate::api::fields::RequestFields;
use crate::api::request::Conversation;
use crate::error::ApiError;
use crate::http::limits::{MOST_CALLS, MOST_MESSAGES};

/// Takes `messages` and `chat_template_kwargs`.
pub(crate) fn read(fields: &mut RequestFields) -> Result<Conversation, ApiError> {
    let messages = match fields.take("messages") {
        None => return Err(ApiError::field("messages", "missing")),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(ApiError::field("messages", "expected an array")),
    };
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        let why = format!("expected 1 to {MOST_MESSAGES} messages, got {}", messages.len());
        return Err(ApiError::field("messages", why));
    }
    let messages = messages.into_iter().enumerate().map(|(i, message)| read_message(i, message));
    let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
    name_tool_results(&mut messages);
    let mut template_variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let effort = fields.string("reasoning_effort")?;
    if let Some(effort) = effort {
        reason_with(&effort, "reasoning_effort", &mut template_variables)?;
    }
    if let Some(thinks) = fields.bool("enable_thinking")? {
        template_variables.entry("enable_thinking").or_insert(thinks.into());
    }
    Ok(Conversation { messages, template_variables })
}

/// Tells the template how much the model is to reason. What `chat_template_kwargs` says itself
/// stays. `field`: the field that has the effort.
pub(crate) fn reason_with(effort: &str, field: &str, variables: &mut Map<String, Value>) -> Result<(), ApiError> {
    const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
    if !EFFORTS.contains(&effort) {
        let why = format!("expected one of {}, got {effort:?}", EFFORTS.join(", "));
        return Err(ApiError::field(field, why));
    }
    variables.entry("reasoning_effort").or_insert(effort.into());
    if effort == "none" {
        variables.entry("enable_thinking").or_insert(false.into());
    }
    Ok(())
}

/// Adds the function's name to tool results, which only have the call's id: some templates print
/// it.
fn name_tool_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        names.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        if message.role == "tool" && message.name.is_none() {
            message.name = message.tool_call_id.as_ref().and_then(|id| names.get(id)).cloned();
        }
    }
}

fn read_message(i: usize, message: Value) -> Result<Message, ApiError> {
    let at = |what: &str| format!("messages[{i}]{what}");
    let wrong = |what: &str, why: &str| ApiError::field(at(what), why);
    let Value::Object(message) = message else { return Err(wrong("", "expected an object")) };
    let Some(role) = message.get("role").and_then(Value::as_str) else {
        return Err(wrong(".role", "expected a string"));
    };
    if role == "function" {
        return Err(wrong(".role", "a tool result has the role \"tool\" and a tool_call_id"));
    }
    let given = |field: &str| message.get(field).filter(|value| !value.is_null());
    if given("function_call").is_some() {
        return Err(wrong(".function_call", "replaced by tool_calls"));
    }
    let string = |field: &str| match given(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&format!(".{field}"), "expected a string")),
    };
    let mut read = Message::new(role, "");
    if let Some(calls) = given("tool_calls") {
        if role != "assistant" {
            return Err(wrong(".tool_calls", "only allowed in messages of the assistant"));
        }
        read.tool_calls = read_calls(&at(".tool_calls"), calls)?;
    }
    if role == "tool" {
        read.tool_call_id = string("tool_call_id")?;
        read.name = string("name")?;
        if read.tool_call_id.is_none() {
            return Err(wrong(".tool_call_id", "missing: a tool result names its call"));
        }
    }
    read.content = match (given("content"), given("refusal").and_then(Value::as_str)) {
        (Some(content), _) => text(&at(".content"), content)?,
        // The assistant refused, and said this instead.
        (None, Some(refusal)) if role == "assistant" => refusal.to_owned(),
        (None, _) if !read.tool_calls.is_empty() => String::new(),
        (None, _) => return Err(wrong(".content", "expected a string or an array of text parts")),
    };
    if role == "assistant" {
        read.reasoning = match string("reasoning_content")? {
            Some(reasoning) => Some(reasoning),
            None => string("reasoning")?,
        };
    }
    // OpenAI's newer name of the role system.
    if role == "developer" {
        "system".clone_into(&mut read.role);
    }
    Ok(read)
}

/// A text: a string, or an array of text parts. `at`: the field, for error messages.
pub(crate) fn text(at: &str, value: &Value) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::field(at, "expected a string or an array of text parts")),
    };
    let part = |(p, part): (usize, &Value)| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some("text"), None) => Err(ApiError::field(format!("{at}[{p}].text"), "expected a string")),
        (Some("refusal"), _) if part["refusal"].is_string() => {
            Ok(part["refusal"].as_str().unwrap_or_default().to_owned())
        }
        (kind, _) => {
            let kind = kind.unwrap_or("without type");
            Err(ApiError::field(
                format!("{at}[{p}]"),
                format!("unsupported part of type {kind:?}: only text is supported"),
            ))
        }
    };
    parts.iter().enumerate().map(part).collect()
}

fn read_calls(at: &str, calls: &Value) -> Result<Vec<ToolCall>, ApiError> {
    let Some(calls) = calls.as_array().filter(|calls| !calls.is_empty() && calls.len() <= MOST_CALLS) else {
        return Err(ApiError::field(at, format!("expected an array of 1 to {MOST_CALLS} calls")));
    };
    calls.iter().enumerate().map(|(j, call)| read_call(&format!("{at}[{j}]"), call)).collect()
}

fn read_call(at: &str, call: &Value) -> Result<ToolCall, ApiError> {
    let wrong = |what: &str, why: String| ApiError::field(format!("{at}{what}"), why);
    let string = |what: &str, value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| wrong(what, "expected a string".to_owned()))
    };
    match call["type"].as_str() {
        Some("function") | None => {}
        Some(other) => return Err(wrong(".type", format!("expected \"function\", got {other:?}"))),
    }
    let function = &call["function"];
    let arguments = string(".function.arguments", &function["arguments"])?;
    let object: Map<String, Value> = serde_json::from_str(&arguments)
        .map_err(|e| wrong(".function.arguments", format!("expected the JSON of an object: {e}")))?;
    let id = string(".id", &call["id"])?;
    Ok(ToolCall { id, name: string(".function.name", &function["name"])?, arguments: object })
}
