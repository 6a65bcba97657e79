//! The body of a response's request. Tools and format are brought into the shape of chat
//! completions, whose parsers read them; errors name the fields as they are here.

use serde_json::{Map, Value, json};

use crate::api::fields::RequestFields;
use crate::api::openai::messages::reason_with;
use crate::api::openai::shared_fields::{self, OwnFields};
use crate::api::openai::tools;
use crate::api::request::{Conversation, GenerationRequest, PromptInput};
use crate::api::responses::input;
use crate::error::ApiError;
use crate::http::limits::MOST_TOP;
use crate::served_model::ServedModel;

/// What an answer repeats of its request.
pub(super) type Echo = Map<String, Value>;

/// Parses the body.
pub(super) fn parse(body: &[u8], model: &ServedModel) -> Result<(GenerationRequest, Echo), ApiError> {
    let mut fields = RequestFields::parse(body)?;
    let mut echo = Map::new();
    let mut variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let instructions = fields.string("instructions")?;
    echo.insert("instructions".to_owned(), instructions.clone().into());
    let messages = input::messages(instructions, fields.take("input"))?;
    refuse_state(&mut fields)?;
    accept(&mut fields, &mut echo)?;
    reasoning(&mut fields, &mut variables, &mut echo)?;
    text(&mut fields, &mut variables, &mut echo)?;
    let logprobs = logprobs(&mut fields, &mut echo)?;
    if let Some(most) = fields.whole("max_output_tokens", 1, u64::from(u32::MAX))? {
        echo.insert("max_output_tokens".to_owned(), most.into());
        fields.put("max_tokens", most.into());
    }
    for name in ["tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "user"] {
        if let Some(value) = fields.peek(name) {
            echo.insert(name.to_owned(), value.clone());
        }
    }
    match fields.take("tools") {
        None => {}
        Some(Value::Array(given)) => {
            fields.put("tools", given.into_iter().enumerate().map(tool).collect::<Result<Vec<_>, _>>()?.into());
        }
        Some(other) => fields.put("tools", other), // refused below
    }
    if let Some(choice) = fields.take("tool_choice") {
        fields.put("tool_choice", tool_choice(choice)?);
    }
    let tools = tools::read(&mut fields).map_err(|error| error.renamed(here))?;
    if let Some(options) = fields.object("stream_options")? {
        let mut options = RequestFields::within("stream_options", options);
        options.bool("include_obfuscation")?; // nothing is obfuscated
        options.none_left()?;
    }
    fields.unsupported("n", &[json!(1)])?;
    let prompt = PromptInput::Chat(Conversation { messages, template_variables: variables });
    let own = OwnFields { prompt, prompt_field: "input", tools, logprobs, default_max_tokens: None };
    let mut request = shared_fields::read(fields, model, own).map_err(|error| error.renamed(here))?;
    request.output.usage = true;
    Ok((request, echo))
}

/// A field of chat completions under its name here.
fn here(field: &str) -> String {
    let field = field.replace(".function.", ".").replace("tool_choice.allowed_tools.", "tool_choice.");
    let field = match field.strip_prefix("response_format") {
        Some(rest) => format!("text.format{}", rest.trim_start_matches(".json_schema")),
        None => field,
    };
    if field == "max_tokens" { "max_output_tokens".to_owned() } else { field }
}

/// Refuses what needs a server that keeps answers.
fn refuse_state(fields: &mut RequestFields) -> Result<(), ApiError> {
    for name in ["previous_response_id", "conversation"] {
        if fields.take(name).is_some() {
            return Err(ApiError::field(name, "this server keeps no answers: send the whole conversation in input"));
        }
    }
    if fields.bool("background")? == Some(true) {
        return Err(ApiError::field("background", "not supported by this server"));
    }
    fields.unsupported("prompt", &[])?;
    fields.unsupported("context_management", &[json!([])])?;
    fields.unsupported("moderation", &[])?;
    fields.unsupported("truncation", &[json!("disabled")])
}

/// Fields that change nothing here.
fn accept(fields: &mut RequestFields, echo: &mut Echo) -> Result<(), ApiError> {
    fields.bool("store")?; // an answer is never kept
    for name in ["safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"] {
        fields.string(name)?;
    }
    if let Some(map) = fields.object("prompt_cache_options")? {
        let mut options = RequestFields::within("prompt_cache_options", map);
        for name in ["mode", "ttl", "comparison_response_id"] {
            options.string(name)?;
        }
        options.bool("prewarm")?;
        options.none_left()?;
    }
    // It counts calls of hosted tools, of which there are none.
    if let Some(most) = fields.whole("max_tool_calls", 1, u64::from(u32::MAX))? {
        echo.insert("max_tool_calls".to_owned(), most.into());
    }
    let metadata = fields.object("metadata")?.unwrap_or_default();
    if !metadata.values().all(Value::is_string) {
        return Err(ApiError::field("metadata", "expected an object of strings"));
    }
    echo.insert("metadata".to_owned(), metadata.into());
    Ok(())
}

fn reasoning(fields: &mut RequestFields, variables: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(map) = fields.object("reasoning")? else { return Ok(()) };
    echo.insert("reasoning".to_owned(), map.clone().into());
    let mut reasoning = RequestFields::within("reasoning", map);
    if let Some(effort) = reasoning.string("effort")? {
        reason_with(&effort, "reasoning.effort", variables)?;
    }
    // The reasoning itself is in the answer; with "auto" the server may leave out a summary.
    reasoning.unsupported("summary", &[json!("auto")])?;
    reasoning.unsupported("generate_summary", &[json!("auto")])?;
    reasoning.none_left()
}

fn text(fields: &mut RequestFields, variables: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(map) = fields.object("text")? else { return Ok(()) };
    echo.insert("text".to_owned(), map.clone().into());
    let mut text = RequestFields::within("text", map);
    if let Some(verbosity) = text.string("verbosity")? {
        if !["low", "medium", "high"].contains(&verbosity.as_str()) {
            let why = format!("expected low, medium or high, got {verbosity:?}");
            return Err(ApiError::field("text.verbosity", why));
        }
        variables.entry("verbosity").or_insert(verbosity.into());
    }
    if let Some(mut format) = text.object("format")? {
        if format.get("type").and_then(Value::as_str) == Some("json_schema") {
            let kind = format.shift_remove("type");
            format = [("type".to_owned(), kind.unwrap_or_default()), ("json_schema".to_owned(), format.into())]
                .into_iter()
                .collect();
        }
        fields.put("response_format", format.into());
    }
    text.none_left()
}

/// The fields `include` and `top_logprobs`.
fn logprobs(fields: &mut RequestFields, echo: &mut Echo) -> Result<Option<usize>, ApiError> {
    // The others are parts of answers that this server never has, or has without being asked.
    const INCLUDED: [&str; 9] = [
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "image_generation_call.results",
    ];
    let wrong = |why: String| Err(ApiError::field("include", why));
    let mut wanted = false;
    match fields.take("include") {
        None => {}
        Some(Value::Array(names)) => {
            for name in names {
                match name.as_str() {
                    Some(name) if INCLUDED.contains(&name) => wanted |= name == INCLUDED[0],
                    _ => return wrong(format!("{name} is not known")),
                }
            }
        }
        Some(_) => return wrong("expected an array of strings".to_owned()),
    }
    let top = fields.whole("top_logprobs", 0, MOST_TOP)?;
    echo.insert("top_logprobs".to_owned(), top.unwrap_or(0).into());
    Ok((wanted || top.is_some_and(|top| top > 0)).then(|| top.unwrap_or(0) as usize))
}

/// A tool in the shape of chat completions.
fn tool((i, tool): (usize, Value)) -> Result<Value, ApiError> {
    match tool["type"].as_str() {
        Some("function") => {}
        Some(kind) => {
            let why = format!("tools of type {kind:?} are not supported: only \"function\" is");
            return Err(ApiError::field(format!("tools[{i}].type"), why));
        }
        None => return Err(ApiError::field(format!("tools[{i}].type"), "expected \"function\"")),
    }
    Ok(json!({ "type": "function", "function": tool }))
}

/// The choice in the shape of chat completions.
fn tool_choice(choice: Value) -> Result<Value, ApiError> {
    match choice["type"].as_str() {
        Some("function") => Ok(json!({ "type": "function", "function": { "name": choice["name"] } })),
        Some("allowed_tools") => {
            let named = |tool: &Value| json!({ "type": "function", "function": { "name": tool["name"] } });
            let tools: Option<Vec<Value>> = choice["tools"].as_array().map(|tools| tools.iter().map(named).collect());
            Ok(json!({ "type": "allowed_tools", "allowed_tools": { "mode": choice["mode"], "tools": tools } }))
        }
        Some(kind) => {
            let why = format!("a choice of type {kind:?} is not supported: \"function\" and \"allowed_tools\" are");
            Err(ApiError::field("tool_choice.type", why))
        }
        None => Ok(choice),
    }
}
