//! The field `response_format`: what the text of an answer must be.

use serde_json::Value;

use crate::api::fields::{Fields, deeper};
use crate::api::tools::is_name;
use crate::error::ApiError;
use crate::http::limits::{LARGEST_SCHEMA, SCHEMA_DEPTH};

const FIELD: &str = "response_format";

/// What the text of an answer must be. Beside OpenAI's three there are `{"type": "regex", "regex": ...}` and `{"type": "lark", "lark": ...}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    /// Anything.
    Text,
    /// A JSON object.
    Object,
    /// JSON of this schema.
    Schema(Value),
    /// A match of a regular expression.
    Regex(String),
    /// What a grammar describes.
    Lark(String),
}

impl Format {
    /// Takes the field. A schema holds whether or not it is `strict`.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let Some(map) = fields.object(FIELD)? else { return Ok(Format::Text) };
        let mut fields = Fields::within(FIELD, map);
        let kind = fields.string("type")?.ok_or_else(|| wrong(".type", "expected a string"))?;
        let format = match kind.as_str() {
            "text" => Format::Text,
            "json_object" => Format::Object,
            "json_schema" => schema(fields.object("json_schema")?)?,
            "regex" => Format::Regex(source(&mut fields, "regex")?),
            "lark" => Format::Lark(source(&mut fields, "lark")?),
            other => {
                let known = "text, json_object, json_schema, regex and lark are known";
                return Err(wrong(".type", &format!("{other:?} is none: {known}")));
            }
        };
        fields.none_left()?;
        Ok(format)
    }

    /// The field to name when what it asks for cannot be had.
    pub(crate) fn param(&self) -> &'static str {
        match self {
            Format::Text | Format::Object => FIELD,
            Format::Schema(_) => "response_format.json_schema.schema",
            Format::Regex(_) => "response_format.regex",
            Format::Lark(_) => "response_format.lark",
        }
    }
}

fn wrong(what: &str, why: &str) -> ApiError {
    ApiError::field(format!("{FIELD}{what}"), why)
}

fn schema(format: Option<serde_json::Map<String, Value>>) -> Result<Format, ApiError> {
    let at = ".json_schema";
    let format = format.ok_or_else(|| wrong(at, "it is missing"))?;
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
        return Err(wrong(&format!("{at}.{other}"), "unknown"));
    }
    let at = ".json_schema.schema";
    match format.get("schema") {
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
            let size = schema.to_string().len();
            if size > LARGEST_SCHEMA {
                return Err(wrong(at, &format!("{size} bytes, and at most {LARGEST_SCHEMA} are taken")));
            }
            if deeper(schema, SCHEMA_DEPTH) {
                return Err(wrong(at, &format!("nested more than {SCHEMA_DEPTH} levels deep")));
            }
            Ok(Format::Schema(schema.clone()))
        }
        _ => Err(wrong(at, "expected a JSON schema, which is an object")),
    }
}

fn source(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let at = format!(".{name}");
    match fields.string(name)? {
        None => Err(wrong(&at, "it is missing")),
        Some(text) if text.is_empty() => Err(wrong(&at, "it is empty")),
        Some(text) if text.len() > LARGEST_SCHEMA => {
            Err(wrong(&at, &format!("{} bytes, and at most {LARGEST_SCHEMA} are taken", text.len())))
        }
        Some(text) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(format: &Value) -> Result<Format, ApiError> {
        let body = json!({ FIELD: format }).to_string();
        Format::read(&mut Fields::read(body.as_bytes()).expect("an object"))
    }

    #[test]
    fn all_kinds_are_read() {
        let schema = json!({ "type": "object" });
        for (format, expected) in [
            (Value::Null, Format::Text),
            (json!({ "type": "text" }), Format::Text),
            (json!({ "type": "json_object" }), Format::Object),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "a", "strict": true, "schema": schema } }),
                Format::Schema(schema.clone()),
            ),
            (json!({ "type": "regex", "regex": "a+" }), Format::Regex("a+".to_owned())),
            (json!({ "type": "lark", "lark": "start: \"a\"" }), Format::Lark("start: \"a\"".to_owned())),
        ] {
            assert_eq!(read(&format).expect("fine"), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |format: Value, param: &str| {
            let error = read(&format).expect_err(param).json();
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
