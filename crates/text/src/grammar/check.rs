//! Sources that are refused before they are compiled: too large, not supported, or not enforceable.

use serde_json::Value;

use crate::error::TextError;
use crate::grammar::intersections;
use crate::grammar::source::GrammarSource;

/// Longest source of a grammar, in bytes.
pub const LONGEST_GRAMMAR: usize = 64 << 10;
/// Deepest nesting of brackets in a source. The parsers of llguidance call themselves for each
/// level.
const DEEPEST: usize = 100;

impl GrammarSource {
    /// Refuses sources that are too large, not supported or not enforceable, without compiling
    /// them.
    ///
    /// # Errors
    /// [`TextError::Grammar`].
    pub fn check(&self) -> Result<(), TextError> {
        refusal(self).map_or(Ok(()), |why| Err(TextError::Grammar { why }))
    }
}

/// Why a grammar must not be compiled; `None`: it may be.
fn refusal(source: &GrammarSource) -> Option<String> {
    let (size, depth) = match source {
        GrammarSource::JsonSchema(schema) => (schema.to_string().len(), value_depth(schema)),
        GrammarSource::JsonObject => (0, 0),
        GrammarSource::Regex(text) | GrammarSource::Lark(text) => (text.len(), bracket_depth(text)),
    };
    if size > LONGEST_GRAMMAR {
        return Some(format!("{size} bytes, and at most {LONGEST_GRAMMAR} are taken"));
    }
    if depth > DEEPEST {
        return Some(format!("it nests {depth} deep, and at most {DEEPEST} is taken"));
    }
    match source {
        GrammarSource::JsonSchema(schema) => schema_refusal(schema),
        GrammarSource::Lark(source) => lark_refusal(source),
        GrammarSource::JsonObject | GrammarSource::Regex(_) => None,
    }
}

fn schema_refusal(schema: &Value) -> Option<String> {
    unenforceable_keyword(schema).or_else(|| intersections::refusal(schema))
}

/// A keyword that the compiler would ignore or could not enforce: keywords of old drafts, and a
/// least number of unnamed properties.
fn unenforceable_keyword(schema: &Value) -> Option<String> {
    let Value::Object(map) = schema else { return None };
    let by_name = ["extends", "disallow", "divisibleBy"].into_iter().find(|key| map.contains_key(*key));
    if let Some(key) = by_name {
        return Some(format!("{key}: this keyword of an old draft of JSON Schema is not supported"));
    }
    if map.get("required").is_some_and(Value::is_boolean) {
        return Some(
            "required: expected an array of names; true and false are of an old draft of JSON Schema".to_owned(),
        );
    }
    // The grammar counts a repeated key twice, the reader of the JSON once.
    let required = map.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if map.get("minProperties").and_then(Value::as_u64).is_some_and(|least| least > required) {
        return Some("minProperties: more than are required by name cannot be enforced".to_owned());
    }
    map.iter().find_map(|(key, value)| match (key.as_str(), value) {
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
            Value::Object(named),
        ) => named.values().find_map(unenforceable_keyword),
        ("enum" | "const" | "default" | "examples" | "example", _) => None,
        (_, Value::Array(schemas)) => schemas.iter().find_map(unenforceable_keyword),
        (_, schema) => unenforceable_keyword(schema),
    })
}

/// Attributes and operators of a Lark grammar that the compiler takes and that cannot be used here.
///
/// Rejected drafts must be rolled back, which the attributes do not allow. The operators intersect
/// expressions without a bound on the work.
fn lark_refusal(source: &str) -> Option<String> {
    let mut rest = source;
    let mut code = String::new(); // without strings and expressions
    while let Some(c) = rest.chars().next() {
        match c {
            '"' | '/' if c == '"' || !rest.starts_with("//") => {
                let mut escaped = false;
                let end = rest[1..].find(|d: char| {
                    let ends = (d == c && !escaped) || d == '\n';
                    escaped = d == '\\' && !escaped;
                    ends
                });
                rest = end.map_or("", |end| &rest[end + 2..]);
            }
            '%' if rest.starts_with("%json") => {
                let mut values = serde_json::Deserializer::from_str(&rest[5..]).into_iter::<Value>();
                if let Some(Ok(schema)) = values.next() {
                    if let Some(why) = schema_refusal(&schema) {
                        return Some(why);
                    }
                    rest = &rest[5 + values.byte_offset()..];
                } else {
                    rest = &rest[5..];
                }
            }
            _ => {
                code.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    for attribute in ["max_tokens", "stop", "suffix", "temperature", "stop_capture", "lazy"] {
        let found = code.match_indices(attribute).any(|(at, _)| {
            let before = code[..at].trim_end().chars().last();
            let after = code[at + attribute.len()..].trim_start().chars().next();
            matches!(before, Some('[' | ',')) && matches!(after, Some('=' | ',' | ']'))
        });
        if found {
            return Some(format!("the attribute {attribute} is not supported"));
        }
    }
    let operator = code.chars().find(|c| matches!(c, '&' | '~'));
    operator.map(|operator| format!("the operator {operator} is not supported: it may take the compiler for ever"))
}

fn value_depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(value_depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(value_depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// How deep brackets nest. Brackets in strings and character classes count too.
fn bracket_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
