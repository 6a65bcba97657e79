//! The fields `tools`, `tool_choice` and `parallel_tool_calls`: the tools that the model may or
//! must call.

use serde_json::{Map, Value, json};

use crate::api::fields::{RequestFields, deeper};
use crate::api::request::{OfferedTool, ToolOffer};
use crate::error::ApiError;
use crate::http::limits::{LARGEST_SCHEMA, MOST_TOOLS, SCHEMA_DEPTH};

/// Longest name of a function.
const LONGEST_NAME: usize = 64;

/// The field `tool_choice`.
enum ToolChoice {
    No,
    Auto,
    Required,
    Function(String),
    Allowed { required: bool, names: Vec<String> },
}

/// Takes `tools`, `tool_choice` and `parallel_tool_calls`.
pub(crate) fn read(fields: &mut RequestFields) -> Result<ToolOffer, ApiError> {
    let offered = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) if tools.len() > MOST_TOOLS => {
            return Err(ApiError::field("tools", format!("{} tools; the limit is {MOST_TOOLS}", tools.len())));
        }
        Some(Value::Array(tools)) => {
            let tools = tools.into_iter().enumerate().map(|(i, tool)| read_tool(&format!("tools[{i}]"), tool));
            tools.collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err(ApiError::field("tools", "expected an array")),
    };
    for (i, tool) in offered.iter().enumerate() {
        if offered[..i].iter().any(|before| before.name == tool.name) {
            let why = format!("a second function named {:?}", tool.name);
            return Err(ApiError::field(format!("tools[{i}].function.name"), why));
        }
    }
    let choice = ToolChoice::read(fields.take("tool_choice"))?;
    let parallel = fields.bool("parallel_tool_calls")?;
    if offered.is_empty() {
        return match choice {
            ToolChoice::No | ToolChoice::Auto => Ok(ToolOffer::default()),
            _ => Err(ApiError::field("tool_choice", "requires the field tools")),
        };
    }
    let place = |name: &String, at: String| {
        let place = offered.iter().position(|tool| tool.name == *name);
        place.ok_or_else(|| ApiError::field(at, format!("no function {name:?} among the tools")))
    };
    let all = || (0..offered.len()).collect();
    let (allowed, required, parallel) = match &choice {
        ToolChoice::No => return Ok(ToolOffer::default()),
        ToolChoice::Auto => (all(), false, parallel),
        ToolChoice::Required => (all(), true, parallel),
        ToolChoice::Function(name) => (vec![place(name, "tool_choice.function.name".to_owned())?], true, Some(false)),
        ToolChoice::Allowed { required, names } => {
            let at = |i: usize| format!("tool_choice.allowed_tools.tools[{i}].function.name");
            let places = names.iter().enumerate().map(|(i, name)| place(name, at(i)));
            (places.collect::<Result<_, _>>()?, *required, parallel)
        }
    };
    Ok(ToolOffer { offered, allowed, required, parallel })
}

fn read_tool(at: &str, tool: Value) -> Result<OfferedTool, ApiError> {
    let wrong = |what: &str, why: String| ApiError::field(format!("{at}{what}"), why);
    let size = tool.to_string().len();
    if size > LARGEST_SCHEMA {
        return Err(wrong("", format!("{size} bytes; the limit is {LARGEST_SCHEMA}")));
    }
    match tool["type"].as_str() {
        Some("function") => {}
        Some(other) => return Err(wrong(".type", format!("expected \"function\", got {other:?}"))),
        None => return Err(wrong(".type", "expected \"function\"".to_owned())),
    }
    let Value::Object(function) = &tool["function"] else {
        return Err(wrong(".function", "expected an object".to_owned()));
    };
    let given = |field: &str| function.get(field).filter(|value| !value.is_null());
    let name = function.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| wrong(".function.name", "expected a string".to_owned()))?;
    if !is_name(name) {
        let why = format!("expected 1 to {LONGEST_NAME} letters, digits, `_` and `-`");
        return Err(wrong(".function.name", why));
    }
    let mut json = Map::new();
    json.insert("name".to_owned(), name.into());
    match given("description") {
        None => {}
        Some(Value::String(text)) => {
            json.insert("description".to_owned(), text.as_str().into());
        }
        Some(_) => return Err(wrong(".function.description", "expected a string".to_owned())),
    }
    let parameters = match given("parameters") {
        None => {
            let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
            none.as_object().cloned().unwrap_or_default()
        }
        Some(Value::Object(schema)) => schema.clone(),
        Some(_) => {
            return Err(wrong(".function.parameters", "expected a JSON schema, which is an object".to_owned()));
        }
    };
    match parameters.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err(wrong(".function.parameters.type", "expected \"object\"".to_owned())),
    }
    if deeper(&Value::Object(parameters.clone()), SCHEMA_DEPTH) {
        return Err(wrong(".function.parameters", format!("nested more than {SCHEMA_DEPTH} levels deep")));
    }
    json.insert("parameters".to_owned(), parameters.clone().into());
    // Required calls follow the schema with and without `strict`.
    if given("strict").is_some_and(|strict| !strict.is_boolean()) {
        return Err(wrong(".function.strict", "expected true or false".to_owned()));
    }
    Ok(OfferedTool { name: name.to_owned(), parameters, json: json!({ "type": "function", "function": json }) })
}

/// Whether this is a valid name of a function or a schema.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(fits)
}

impl ToolChoice {
    fn read(value: Option<Value>) -> Result<Self, ApiError> {
        let wrong = |what: &str, why: &str| ApiError::field(format!("tool_choice{what}"), why);
        let value = match value {
            None => return Ok(ToolChoice::Auto),
            Some(value) => value,
        };
        match value.as_str() {
            Some("none") => return Ok(ToolChoice::No),
            Some("auto") => return Ok(ToolChoice::Auto),
            Some("required") => return Ok(ToolChoice::Required),
            Some(_) => return Err(wrong("", "expected \"none\", \"auto\", \"required\" or an object")),
            None => {}
        }
        let name = |value: &Value| value["function"]["name"].as_str().map(str::to_owned);
        match value["type"].as_str() {
            Some("function") => match name(&value) {
                Some(name) => Ok(ToolChoice::Function(name)),
                None => Err(wrong(".function.name", "expected a string")),
            },
            Some("allowed_tools") => {
                let allowed = &value["allowed_tools"];
                let required = match allowed["mode"].as_str() {
                    Some("auto") => false,
                    Some("required") => true,
                    _ => return Err(wrong(".allowed_tools.mode", "expected \"auto\" or \"required\"")),
                };
                let names = allowed["tools"].as_array().filter(|tools| !tools.is_empty() && tools.len() <= MOST_TOOLS);
                let names = names.and_then(|tools| tools.iter().map(name).collect::<Option<Vec<_>>>());
                let names = names.ok_or_else(|| wrong(".allowed_tools.tools", "expected an array of functions"))?;
                Ok(ToolChoice::Allowed { required, names })
            }
            _ => Err(wrong(".type", "expected \"function\" or \"allowed_tools\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &Value) -> Result<ToolOffer, ApiError> {
        read(&mut RequestFields::parse(body.to_string().as_bytes()).expect("an object"))
    }

    fn two() -> Value {
        json!([
            { "type": "function", "function": { "name": "a", "description": "A.", "strict": true } },
            { "type": "function", "function": { "name": "b", "parameters": { "type": "object" } } },
        ])
    }

    #[test]
    fn tool_choice_selects_optional_and_required_tools() {
        let of = |choice: Value| {
            let tools = parsed(&json!({ "tools": two(), "tool_choice": choice })).expect("valid");
            (tools.offered.len(), tools.allowed, tools.required, tools.parallel)
        };
        assert_eq!(of(Value::Null), (2, vec![0, 1], false, None));
        assert_eq!(of(json!("auto")), (2, vec![0, 1], false, None));
        assert_eq!(of(json!("none")), (0, vec![], false, None));
        assert_eq!(of(json!("required")), (2, vec![0, 1], true, None));
        assert_eq!(of(json!({ "type": "function", "function": { "name": "b" } })), (2, vec![1], true, Some(false)));
        let allowed = |mode: &str| {
            let tools = json!([{ "type": "function", "function": { "name": "b" } }]);
            json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } })
        };
        assert_eq!(of(allowed("auto")), (2, vec![1], false, None));
        assert_eq!(of(allowed("required")), (2, vec![1], true, None));
        let tools = parsed(&json!({ "tools": two(), "parallel_tool_calls": false })).expect("valid");
        assert_eq!(tools.parallel, Some(false));
        assert_eq!(tools.callable().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(
            parsed(&json!({ "tool_choice": "auto", "parallel_tool_calls": true })).expect("valid").offered.is_empty()
        );
        assert!(parsed(&json!({ "tools": [] })).expect("valid").offered.is_empty());
    }

    #[test]
    fn the_template_gets_name_description_and_schema() {
        let tools = parsed(&json!({ "tools": two() })).expect("valid");
        let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let function = json!({ "name": "a", "description": "A.", "parameters": none });
        assert_eq!(tools.offered[0].json, json!({ "type": "function", "function": function }));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let refused = |body: Value, param: &str| {
            let error = parsed(&body).expect_err(param).json();
            assert_eq!(error["error"]["param"], param, "{error}");
        };
        let tool = |function: Value| json!({ "tools": [{ "type": "function", "function": function }] });
        refused(json!({ "tools": {} }), "tools");
        refused(json!({ "tools": vec![two()[0].clone(); 129] }), "tools");
        refused(json!({ "tools": [1] }), "tools[0].type");
        refused(json!({ "tools": [{ "type": "custom" }] }), "tools[0].type");
        refused(json!({ "tools": [{ "type": "function" }] }), "tools[0].function");
        refused(tool(json!({})), "tools[0].function.name");
        for name in ["", "a b", "é", &"x".repeat(65)] {
            refused(tool(json!({ "name": name })), "tools[0].function.name");
        }
        refused(tool(json!({ "name": "a", "description": 1 })), "tools[0].function.description");
        refused(tool(json!({ "name": "a", "parameters": [] })), "tools[0].function.parameters");
        refused(tool(json!({ "name": "a", "parameters": { "type": "array" } })), "tools[0].function.parameters.type");
        refused(tool(json!({ "name": "a", "strict": "yes" })), "tools[0].function.strict");
        refused(tool(json!({ "name": "a", "description": "x".repeat(70_000) })), "tools[0]");
        let deep = (0..52).fold(json!({}), |inner, _| json!({ "a": inner }));
        refused(tool(json!({ "name": "a", "parameters": deep })), "tools[0].function.parameters");
        refused(json!({ "tools": [two()[0], two()[0]] }), "tools[1].function.name");
        refused(json!({ "tool_choice": "required" }), "tool_choice");
        refused(json!({ "tools": two(), "tool_choice": "maybe" }), "tool_choice");
        refused(json!({ "tools": two(), "tool_choice": { "type": "other" } }), "tool_choice.type");
        refused(json!({ "tools": two(), "tool_choice": { "type": "function" } }), "tool_choice.function.name");
        let unknown = json!({ "type": "function", "function": { "name": "c" } });
        refused(json!({ "tools": two(), "tool_choice": unknown }), "tool_choice.function.name");
        let allowed = json!({ "type": "allowed_tools", "allowed_tools": { "mode": "auto", "tools": [unknown] } });
        refused(json!({ "tools": two(), "tool_choice": allowed }), "tool_choice.allowed_tools.tools[0].function.name");
        refused(json!({ "tools": two(), "parallel_tool_calls": 1 }), "parallel_tool_calls");
    }
}
