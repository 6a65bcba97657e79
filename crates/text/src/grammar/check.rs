//! What is refused of a grammar before it is compiled: what would never come to an end, and what would not hold.

use serde_json::Value;

use crate::grammar::source::GrammarSource;

/// Longest source of a grammar, in bytes.
pub const LONGEST_GRAMMAR: usize = 64 << 10;
/// Deepest nesting of brackets in a source: what reads it calls itself for each.
const DEEPEST: usize = 100;
/// Largest product of all `multipleOf` of a schema, and most expressions that hold for one text at a time.
const LARGEST_MODULUS: f64 = 10_000.0;
const MOST_AT_A_TIME: usize = 3;
/// Why a grammar is not to be compiled; `None`: it may be.
pub(crate) fn refusal(source: &GrammarSource) -> Option<String> {
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
        GrammarSource::JsonSchema(schema) => unheld(schema).or_else(|| endless(schema)),
        GrammarSource::Lark(source) => unusable(source),
        GrammarSource::JsonObject | GrammarSource::Regex(_) => None,
    }
}

/// A keyword that asserts what cannot be held: older drafts' own, which the compiler takes for remarks, and a number of unnamed properties.
fn unheld(schema: &Value) -> Option<String> {
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
    // A key that stands twice counts twice while the text is made, and once when it is read.
    let required = map.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if map.get("minProperties").and_then(Value::as_u64).is_some_and(|least| least > required) {
        return Some("minProperties: more than are required by name cannot be held".to_owned());
    }
    map.iter().find_map(|(key, value)| match (key.as_str(), value) {
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
            Value::Object(named),
        ) => named.values().find_map(unheld),
        ("enum" | "const" | "default" | "examples" | "example", _) => None,
        (_, Value::Array(schemas)) => schemas.iter().find_map(unheld),
        (_, schema) => unheld(schema),
    })
}

/// Why a schema would take the compiler for ever: to see whether expressions that all hold at a time leave any text it walks through the product of their
/// automata, and nothing can stop it.
fn endless(schema: &Value) -> Option<String> {
    let mut moduli = 1.0f64;
    multiply_moduli(schema, &mut moduli);
    if moduli > LARGEST_MODULUS {
        return Some(format!("multipleOf: the product of all is above {LARGEST_MODULUS}, which would take too long"));
    }
    crowded(schema)
}

fn multiply_moduli(schema: &Value, product: &mut f64) {
    match schema {
        Value::Object(map) => {
            if let Some(modulus) = map.get("multipleOf").and_then(Value::as_f64) {
                // Of 0.01 the digits count.
                *product *= if modulus < 1.0 { 1.0 / modulus } else { modulus };
            }
            map.values().for_each(|value| multiply_moduli(value, product));
        }
        Value::Array(items) => items.iter().for_each(|item| multiply_moduli(item, product)),
        _ => {}
    }
}

/// An `allOf` of more expressions than can be held at a time.
fn crowded(schema: &Value) -> Option<String> {
    match schema {
        Value::Object(map) => {
            let all = map.get("allOf").map_or(0, expressions);
            if all > MOST_AT_A_TIME {
                return Some(format!(
                    "allOf: {all} patterns and formats at a time, and at most {MOST_AT_A_TIME} are taken"
                ));
            }
            map.values().find_map(crowded)
        }
        Value::Array(items) => items.iter().find_map(crowded),
        _ => None,
    }
}

fn expressions(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let own = ["pattern", "format", "multipleOf"].iter().filter(|key| map.contains_key(**key)).count();
            own + map.values().map(expressions).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(expressions).sum(),
        _ => 0,
    }
}

/// What of a Lark grammar cannot be used, though the compiler takes it: what cannot be taken back with a refused draft, what it would leave aside, and what it may
/// never come to an end with.
fn unusable(source: &str) -> Option<String> {
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
                    if let Some(why) = unheld(&schema).or_else(|| endless(&schema)) {
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

/// How deep brackets nest, those in strings and classes counted too.
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
