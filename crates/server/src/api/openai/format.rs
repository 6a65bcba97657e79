//! The field `response_format`: what the text of the answer must be.

use serde_json::Value;

use crate::api::fields::{RequestFields, deeper};
use crate::api::openai::tools::is_name;
use crate::api::request::AnswerFormat;
use crate::error::ApiError;
use crate::http::limits::{LARGEST_SCHEMA, SCHEMA_DEPTH};

const FIELD: &str = "response_format";

/// Takes the field: the format, and the field to name when its source is refused. Besides OpenAI's
/// three types there are `{"type": "regex", "regex": ...}` and `{"type": "lark", "lark": ...}`. A
/// schema constrains the answer with and without `strict`.
pub(super) fn read(fields: &mut RequestFields) -> Result<(AnswerFormat, &'static str), ApiError> {
    let Some(map) = fields.object(FIELD)? else { return Ok((AnswerFormat::Text, FIELD)) };
    let mut fields = RequestFields::within(FIELD, map);
    let kind = fields.string("type")?.ok_or_else(|| wrong(".type", "expected a string"))?;
    let format = match kind.as_str() {
        "text" => (AnswerFormat::Text, FIELD),
        "json_object" => (AnswerFormat::JsonObject, FIELD),
        "json_schema" => {
            let schema = schema(fields.object("json_schema")?)?;
            (AnswerFormat::JsonSchema(schema), "response_format.json_schema.schema")
        }
        "regex" => (AnswerFormat::Regex(source(&mut fields, "regex")?), "response_format.regex"),
        "lark" => (AnswerFormat::Lark(source(&mut fields, "lark")?), "response_format.lark"),
        other => {
            let expected = "expected text, json_object, json_schema, regex or lark";
            return Err(wrong(".type", &format!("{expected}, got {other:?}")));
        }
    };
    fields.none_left()?;
    Ok(format)
}

fn wrong(what: &str, why: &str) -> ApiError {
    ApiError::field(format!("{FIELD}{what}"), why)
}

fn schema(format: Option<serde_json::Map<String, Value>>) -> Result<Value, ApiError> {
    let at = ".json_schema";
    let format = format.ok_or_else(|| wrong(at, "missing"))?;
    match format.get("name") {
        Some(Value::String(name)) if is_name(name) => {}
        _ => return Err(wrong(".json_schema.name", "expected 1 to 64 letters, digits, `_` and `-`")),
    }
    let fits = |key: &str, fits: fn(&Value) -> bool| format.get(key).is_none_or(|value| value.is_null() || fits(value));
    if !fits("description", Value::is_string) {
        return Err(wrong(".json_schema.description", "expected a string"));
    }
    if !fits("strict", Value::is_boolean) {
        return Err(wrong(".json_schema.strict", "expected true or false"));
    }
    let known = ["name", "description", "strict", "schema"];
    if let Some(other) = format.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(wrong(&format!("{at}.{other}"), "unknown field"));
    }
    let at = ".json_schema.schema";
    match format.get("schema") {
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
            let size = schema.to_string().len();
            if size > LARGEST_SCHEMA {
                return Err(wrong(at, &format!("{size} bytes; the limit is {LARGEST_SCHEMA}")));
            }
            if deeper(schema, SCHEMA_DEPTH) {
                return Err(wrong(at, &format!("nested more than {SCHEMA_DEPTH} levels deep")));
            }
            Ok(schema.clone())
        }
        _ => Err(wrong(at, "expected a JSON schema, which is an object")),
    }
}

fn source(fields: &mut RequestFields, name: &str) -> Result<String, ApiError> {
    let at = format!(".{name}");
    match fields.string(name)? {
        None => Err(wrong(&at, "missing")),
        Some(text) if text.is_empty() => Err(wrong(&at, "empty")),
        Some(text) if text.len() > LARGEST_SCHEMA => {
            Err(wrong(&at, &format!("{} bytes; the limit is {LARGEST_SCHEMA}", text.len())))
        }
        Some(text) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(format: &Value) -> Result<AnswerFormat, ApiError> {
        let body = json!({ FIELD: format }).to_string();
        read(&mut RequestFields::parse(body.as_bytes()).expect("an object")).map(|(format, _)| format)
    }

    #[test]
    fn all_types_are_read() {
        let schema = json!({ "type": "object" });
        for (format, expected) in [
            (Value::Null, AnswerFormat::Text),
            (json!({ "type": "text" }), AnswerFormat::Text),
            (json!({ "type": "json_object" }), AnswerFormat::JsonObject),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "a", "strict": true, "schema": schema } }),
                AnswerFormat::JsonSchema(schema.clone()),
            ),
            (json!({ "type": "regex", "regex": "a+" }), AnswerFormat::Regex("a+".to_owned())),
            (json!({ "type": "lark", "lark": "start: \"a\"" }), AnswerFormat::Lark("start: \"a\"".to_owned())),
        ] {
            assert_eq!(parsed(&format).expect("valid"), expected);
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let refused = |format: Value, param: &str| {
            let error = parsed(&format).expect_err(param).json();
            assert_eq!(error["error"]["param"], param, "{error}");
        };
        refused(json!("json_object"), "response_format");
        refused(json!({}), "response_format.type");
        refused(json!({ "type": 1 }), "response_format.type");
        refused(json!({ "type": "yaml" }), "response_format.type");
        refused(json!({ "type": "text", "regex": "a" }), "response_format.regex");
        refused(json!({ "type": "json_schema" }), "response_format.json_schema");
        let with = |inner: Value| json!({ "type": "json_schema", "json_schema": inner });
        refused(with(json!([])), "response_format.json_schema");
        refused(with(json!({ "schema": {} })), "response_format.json_schema.name");
        refused(with(json!({ "name": "a" })), "response_format.json_schema.schema");
        refused(with(json!({ "name": "a", "schema": "x" })), "response_format.json_schema.schema");
        refused(with(json!({ "name": "a", "schema": {}, "strict": 1 })), "response_format.json_schema.strict");
        refused(
            with(json!({ "name": "a", "schema": {}, "description": 1 })),
            "response_format.json_schema.description",
        );
        refused(with(json!({ "name": "a", "schema": {}, "other": 1 })), "response_format.json_schema.other");
        let large = json!({ "name": "a", "schema": { "description": "x".repeat(LARGEST_SCHEMA) } });
        refused(with(large), "response_format.json_schema.schema");
        let deep = (0..51).fold(json!({}), |inner, _| json!({ "not": inner }));
        refused(with(json!({ "name": "a", "schema": deep })), "response_format.json_schema.schema");
        refused(json!({ "type": "regex" }), "response_format.regex");
        refused(json!({ "type": "regex", "regex": "" }), "response_format.regex");
        refused(json!({ "type": "lark", "lark": "x".repeat(LARGEST_SCHEMA + 1) }), "response_format.lark");
    }
}
