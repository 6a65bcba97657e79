//! The fields of a JSON request. Each is taken once, with its type and range; what remains is
//! unknown.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::http::limits::DEPTH;

/// The fields of a request, or of an object in one of its fields, that have not been taken yet. A
/// null counts as absent.
#[derive(Debug)]
pub(crate) struct RequestFields {
    map: Map<String, Value>,
    outer: Option<&'static str>, // the field that holds the object
}

/// Names of unknown fields that have been logged.
static UNKNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Most of these names, so that no client fills the memory or the log.
const MOST_UNKNOWN: usize = 100;

impl RequestFields {
    /// The fields of a body.
    ///
    /// # Errors
    /// The body is not a JSON object, or is nested too deeply.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::bad_request(format!("the body is not valid JSON: {e}")))?;
        if deeper(&value, DEPTH) {
            return Err(ApiError::bad_request(format!("the body is nested more than {DEPTH} levels deep")));
        }
        match value {
            Value::Object(map) => Ok(RequestFields { map, outer: None }),
            _ => Err(ApiError::bad_request("the body is not a JSON object")),
        }
    }

    /// The fields of an object that is the value of the field `outer`. Errors name both:
    /// `outer.name`.
    pub(crate) fn within(outer: &'static str, map: Map<String, Value>) -> Self {
        RequestFields { map, outer: Some(outer) }
    }

    /// The error of the field `name`.
    fn wrong(&self, name: &str, why: impl Into<String>) -> ApiError {
        match self.outer {
            Some(outer) => ApiError::field(format!("{outer}.{name}"), why),
            None => ApiError::field(name, why),
        }
    }

    /// Takes a field of any type.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// A field that stays.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Adds a field, or replaces it.
    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "expected a string")),
        }
    }

    /// Takes a Boolean.
    pub(crate) fn bool(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(name, "expected true or false")),
        }
    }

    /// Takes a number from `from` to `to`.
    pub(crate) fn number(&mut self, name: &str, from: f64, to: f64) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|v| (from..=to).contains(v)) {
            Some(value) => Ok(Some(value as f32)),
            None => Err(self.wrong(name, format!("expected a number from {from} to {to}, got {}", brief(&value)))),
        }
    }

    /// Takes a whole number from `from` to `to`.
    pub(crate) fn whole(&mut self, name: &str, from: u64, to: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_u64().filter(|v| (from..=to).contains(v)) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(self.wrong(name, format!("expected a whole number from {from} to {to}, got {}", brief(&value))))
            }
        }
    }

    /// Takes an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong(name, "expected an object")),
        }
    }

    /// Refuses a field that the server does not support, unless its value is one of `neutral`,
    /// which change nothing.
    pub(crate) fn unsupported(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if !neutral.contains(&value) => Err(self.wrong(name, "not supported by this server")),
            _ => Ok(()),
        }
    }

    /// Logs the remaining fields, each name once.
    pub(crate) fn finish(self) {
        let mut known = UNKNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        for name in self.map.keys() {
            let name: String = name.chars().take(64).collect();
            if known.len() < MOST_UNKNOWN && known.insert(name.clone()) {
                tracing::warn!(field = name, "ignored an unknown field of a request");
            }
        }
    }

    /// Refuses the remaining fields.
    pub(crate) fn none_left(self) -> Result<(), ApiError> {
        match self.map.keys().next() {
            Some(name) => Err(self.wrong(name, "unknown field")),
            None => Ok(()),
        }
    }
}

/// A value, shortened for a message.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 { text } else { text.chars().take(40).chain("...".chars()).collect() }
}

/// Whether a value is nested more than `than` levels deep.
pub(crate) fn deeper(value: &Value, than: usize) -> bool {
    match value {
        _ if than == 0 => true,
        Value::Array(items) => items.iter().any(|item| deeper(item, than - 1)),
        Value::Object(map) => map.values().any(|item| deeper(item, than - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_types_and_ranges() {
        let mut fields =
            RequestFields::parse(br#"{"a": 0.5, "b": 7, "c": "x", "d": null, "e": -1, "f": true, "g": {}}"#)
                .expect("an object");
        assert_eq!(fields.number("a", 0.0, 2.0).expect("in range"), Some(0.5));
        assert_eq!(fields.whole("b", 1, 9).expect("in range"), Some(7));
        assert_eq!(fields.string("c").expect("a string").as_deref(), Some("x"));
        assert_eq!(fields.string("d").expect("null is absent"), None);
        let why = fields.whole("e", 0, 9).expect_err("negative").json();
        assert_eq!(why["error"]["message"], "e: expected a whole number from 0 to 9, got -1");
        assert_eq!(why["error"]["param"], "e");
        assert_eq!(fields.bool("f").expect("a bool"), Some(true));
        assert!(fields.object("g").expect("an object").is_some());
        assert!(fields.none_left().is_ok());
        let mut fields = RequestFields::parse(br#"{"n": 1, "m": 2, "z": 3}"#).expect("an object");
        assert!(fields.unsupported("n", &[Value::from(1)]).is_ok() && fields.unsupported("m", &[]).is_err());
        assert!(fields.none_left().is_err());
    }

    #[test]
    fn a_body_that_is_not_an_object_or_too_deep_is_refused() {
        for body in ["", "[]", "1", "{", "{\"a\":}"] {
            assert!(RequestFields::parse(body.as_bytes()).is_err(), "{body}");
        }
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(80), "]".repeat(80));
        assert!(RequestFields::parse(deep.as_bytes()).is_err());
        let unclosed = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(RequestFields::parse(unclosed.as_bytes()).is_err());
    }
}
