//! The body of a message's request. Tools and format are brought into the shape of chat
//! completions, whose parsers read them; errors name the fields as they are here.

use serde_json::{Map, Value, json};

use crate::api::anthropic::blocks;
use crate::api::fields::RequestFields;
use crate::api::openai::shared_fields::{self, OwnFields};
use crate::api::openai::tools;
use crate::api::request::{Conversation, GenerationRequest, PromptInput};
use crate::error::ApiError;
use crate::served_model::ServedModel;

/// Parses the body.
pub(super) fn parse(body: &[u8], model: &ServedModel) -> Result<GenerationRequest, ApiError> {
    let mut fields = RequestFields::parse(body)?;
    let messages = blocks::messages(fields.take("system").as_ref(), fields.take("messages").as_ref())?;
    let mut variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    thinking(&mut fields, &mut variables)?;
    output_config(&mut fields, &mut variables)?;
    accept(&mut fields)?;
    if let Some(stops) = fields.take("stop_sequences") {
        if !stops.is_array() {
            return Err(ApiError::field("stop_sequences", "expected an array of strings"));
        }
        fields.put("stop", stops);
    }
    match fields.take("tools") {
        None => {}
        Some(Value::Array(given)) => {
            fields.put("tools", given.iter().enumerate().map(tool).collect::<Result<Vec<_>, _>>()?.into());
        }
        Some(_) => return Err(ApiError::field("tools", "expected an array")),
    }
    if let Some(choice) = fields.object("tool_choice")? {
        tool_choice(choice, &mut fields)?;
    }
    let tools = tools::read(&mut fields).map_err(|error| error.renamed(here))?;
    fields.unsupported("n", &[json!(1)])?;
    let prompt = PromptInput::Chat(Conversation { messages, template_variables: variables });
    let own = OwnFields { prompt, prompt_field: "messages", tools, logprobs: None, default_max_tokens: None };
    shared_fields::read(fields, model, own).map_err(|error| error.renamed(here))
}

/// A field of chat completions under its name here.
fn here(field: &str) -> String {
    let field = field.replace(".function.parameters", ".input_schema").replace(".function.", ".");
    match field.strip_prefix("response_format") {
        Some(rest) => format!("output_config.format{}", rest.trim_start_matches(".json_schema")),
        None if field == "stop" => "stop_sequences".to_owned(),
        None => field,
    }
}

/// Fields that change nothing here, and those that would.
fn accept(fields: &mut RequestFields) -> Result<(), ApiError> {
    if let Some(map) = fields.object("metadata")? {
        let mut metadata = RequestFields::within("metadata", map);
        metadata.string("user_id")?;
        metadata.none_left()?;
    }
    if let Some(map) = fields.object("cache_control")? {
        let mut control = RequestFields::within("cache_control", map);
        control.string("type")?;
        control.string("ttl")?;
        control.none_left()?;
    }
    fields.string("service_tier")?;
    fields.string("inference_geo")?;
    fields.string("speed")?;
    fields.unsupported("container", &[])?;
    fields.unsupported("mcp_servers", &[json!([])])?;
    fields.unsupported("context_management", &[json!({ "edits": [] })])
}

fn thinking(fields: &mut RequestFields, variables: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(map) = fields.object("thinking")? else { return Ok(()) };
    let mut thinking = RequestFields::within("thinking", map);
    let thinks = match thinking.string("type")?.as_deref() {
        Some("enabled" | "adaptive") => true,
        Some("disabled") => false,
        _ => return Err(ApiError::field("thinking.type", "expected enabled, adaptive or disabled")),
    };
    variables.entry("enable_thinking").or_insert(thinks.into());
    // A variable for the template, and no limit.
    if let Some(budget) = thinking.whole("budget_tokens", 1, u64::from(u32::MAX))? {
        variables.entry("thinking_budget").or_insert(budget.into());
    }
    thinking.unsupported("display", &[json!("summarized")])?;
    thinking.none_left()
}

fn output_config(fields: &mut RequestFields, variables: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(map) = fields.object("output_config")? else { return Ok(()) };
    let mut config = RequestFields::within("output_config", map);
    if let Some(effort) = config.string("effort")? {
        if !["low", "medium", "high", "xhigh", "max"].contains(&effort.as_str()) {
            let why = format!("expected low, medium, high, xhigh or max, got {effort:?}");
            return Err(ApiError::field("output_config.effort", why));
        }
        variables.entry("reasoning_effort").or_insert(effort.into());
    }
    if let Some(format) = config.object("format")? {
        if format.get("type").and_then(Value::as_str) != Some("json_schema") {
            return Err(ApiError::field("output_config.format.type", "expected \"json_schema\""));
        }
        let schema = json!({ "name": "output", "schema": format.get("schema") });
        fields.put("response_format", json!({ "type": "json_schema", "json_schema": schema }));
    }
    config.none_left()
}

/// A tool in the shape of chat completions.
fn tool((i, tool): (usize, &Value)) -> Result<Value, ApiError> {
    match tool["type"].as_str() {
        None if tool["type"].is_null() => {}
        Some("custom") => {}
        kind => {
            let kind = kind.unwrap_or_default();
            let why = format!("tools of type {kind:?} are not supported: only those with an input_schema are");
            return Err(ApiError::field(format!("tools[{i}].type"), why));
        }
    }
    let function = json!({
        "name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"],
        "strict": tool["strict"],
    });
    Ok(json!({ "type": "function", "function": function }))
}

/// Puts the choice into the fields of chat completions.
fn tool_choice(choice: Map<String, Value>, fields: &mut RequestFields) -> Result<(), ApiError> {
    let mut choice = RequestFields::within("tool_choice", choice);
    let name = choice.string("name")?;
    let one = choice.bool("disable_parallel_tool_use")?;
    let kind = match choice.string("type")?.as_deref() {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => json!({ "type": "function", "function": { "name": name } }),
        _ => return Err(ApiError::field("tool_choice.type", "expected auto, any, tool or none")),
    };
    choice.none_left()?;
    fields.put("tool_choice", kind);
    if let Some(one) = one {
        fields.put("parallel_tool_calls", (!one).into());
    }
    Ok(())
}
