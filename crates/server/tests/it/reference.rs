//! The OpenAPI document against the server that it describes, and against docs/api.md, which is
//! made of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::support::Running;
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../../src/api/openapi.json");

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("JSON")
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).expect(path),
        None => schema,
    }
}

/// The schema of a request's body.
fn body<'a>(document: &'a Value, path: &str) -> &'a Value {
    resolved(document, &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])
}

#[test]
fn the_document_is_served_and_names_every_path() {
    let server = Running::new();
    let (status, text) = server.get("/openapi.json");
    assert_eq!(status, 200);
    let served: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(served["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut known: Vec<String> = Vec::new();
    for (path, methods) in served["paths"].as_object().expect("paths") {
        known.push(path.replace("{id}", "{*id}"));
        for method in methods.as_object().expect("methods").keys() {
            let path = path.replace("{id}", "tiny");
            let (status, text) = if method == "get" { server.get(&path) } else { server.raw(&path, "{}", &[]) };
            assert!(status != 404 && status != 405 && status < 500, "{method} {path}: {status} {text}");
            let described = &methods[method.as_str()]["responses"][status.to_string()];
            assert!(described.is_object(), "{method} {path} answered {status}, which the document does not describe");
        }
    }
    // The page's files are not part of the API; every other route must be described.
    let mut routes = 0;
    for path in sources() {
        let source = std::fs::read_to_string(&path).expect("text");
        for route in source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let of_a_test = path.ends_with("http/panics.rs");
            assert!(of_a_test || known.iter().any(|path| path == route), "{route} is not in the document");
            routes += 1;
        }
    }
    assert!(routes > 10, "{routes}");
}

/// Each field that the document describes is one that the server reads: of a wrong type it is
/// refused by its name.
#[test]
fn every_field_is_read() {
    let server = Running::new();
    let document = document();
    let bases = [
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 })),
        ("/v1/completions", json!({ "prompt": "a", "max_tokens": 1 })),
        ("/v1/responses", json!({ "input": "a", "max_output_tokens": 1 })),
        ("/v1/messages", json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 })),
        ("/v1/messages/count_tokens", json!({ "messages": [{ "role": "user", "content": "a" }] })),
        ("/tokenize", json!({ "content": "a" })),
        ("/detokenize", json!({ "tokens": [1] })),
        ("/apply-template", json!({ "messages": [{ "role": "user", "content": "a" }] })),
    ];
    for (path, base) in bases {
        let (status, answer) = server.post(path, &base);
        assert_eq!(status, 200, "{path}: {answer}");
        let properties = body(&document, path)["properties"].as_object().expect("properties");
        for name in properties.keys() {
            let mut wrong = base.clone();
            // A value that no field accepts.
            wrong[name] = match name.as_str() {
                "chat_template_kwargs" | "user" => json!([[7]]),
                "model" => json!({ "no": "model" }),
                _ => json!({ "nothing such": [true] }),
            };
            let (status, answer) = server.post(path, &wrong);
            // Anthropic's errors name the field at the message's start.
            let named = [&answer["error"]["param"], &answer["error"]["message"]];
            let param = named.into_iter().find_map(Value::as_str).unwrap_or_default();
            assert!(status == 400 && param.starts_with(name.as_str()), "{path}: {name}: {status} {answer}");
        }
    }
}

/// The Rust files of the server.
fn sources() -> Vec<PathBuf> {
    let mut sources = Vec::new();
    rust_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut sources);
    sources
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the source") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The document describes each field that the source reads.
#[test]
fn every_field_is_described() {
    let mut seen = 0;
    for path in sources() {
        let source = std::fs::read_to_string(&path).expect("text");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for call in ["take", "string", "bool", "whole", "number", "object", "unsupported"] {
            for rest in code.split(&format!("fields.{call}(\"")).skip(1) {
                let name = rest.split('"').next().expect("a name");
                assert!(DOCUMENT.contains(&format!("\"{name}\": ")), "{}: {name} is not described", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// The type of a schema, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().expect("a name");
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        let kinds: Vec<String> = kinds.iter().filter(|k| k["type"] != "null").map(kind).collect();
        return kinds.join(" or ");
    }
    let of = |word: &str| match word {
        "array" => match &schema["items"] {
            Value::Null => "array".to_owned(),
            items => format!("array of {}", kind(items)),
        },
        "object" => match schema["properties"].as_object() {
            Some(properties) => {
                let keys: Vec<String> = properties.iter().map(|(k, v)| format!("`{k}`: {}", kind(v))).collect();
                format!("object ({})", keys.join("; "))
            }
            None => "object".to_owned(),
        },
        word => word.to_owned(),
    };
    match &schema["type"] {
        Value::String(word) => of(word),
        Value::Array(words) => {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).filter(|w| *w != "null").map(of).collect();
            words.join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

fn range(schema: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(default) = schema.get("default") {
        parts.push(format!("default {default}"));
    }
    let bound = |low: &str, high: &str, what: &str| match (schema.get(low), schema.get(high)) {
        (Some(low), Some(high)) => Some(format!("{what}{low} to {high}")),
        (Some(low), None) => Some(format!("{what}{low} or more")),
        (None, Some(high)) => Some(format!("{what}at most {high}")),
        (None, None) => None,
    };
    if let Some(low) = schema.get("exclusiveMinimum") {
        parts.push(format!("above {low}, at most {}", schema["maximum"]));
    } else {
        parts.extend(bound("minimum", "maximum", ""));
    }
    parts.extend(bound("minItems", "maxItems", "items: "));
    parts.join("; ")
}

fn table(schema: &Value, out: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    out.push_str("| field | type | range | meaning |\n|---|---|---|---|\n");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let meaning = property["description"].as_str().unwrap_or_default();
        let must = if required.contains(&name.as_str()) { " (required)" } else { "" };
        let kind = kind(property).replace('|', "\\|");
        let _ = writeln!(out, "| `{name}`{must} | {kind} | {} | {meaning} |", range(property));
    }
    out.push('\n');
}

/// A paragraph in lines of at most 100 characters. `first` begins the first line, and as many
/// spaces the others.
fn wrapped(first: &str, text: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut begun = false; // whether the last line has a word
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if begun && last.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("{}{word}", " ".repeat(first.len())));
        } else {
            if begun {
                last.push(' ');
            }
            last.push_str(word);
        }
        begun = true;
    }
    lines.join("\n")
}

fn page(document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = "Made from [the OpenAPI document](../crates/server/src/api/openapi.json), which the server has \
                 at `/openapi.json`. Examples: [clients](clients.md). Keys, limits and errors: [serving](serving.md).";
    let description = wrapped("", &text(&document["info"]["description"]));
    let mut out = format!("# API reference\n\n{description}\n\n{}\n\n", wrapped("", about));
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let _ = write!(out, "## {} {path}\n\n{}.\n\n", method.to_uppercase(), text(&operation["summary"]));
            if operation["requestBody"].is_object() {
                table(body(document, path), &mut out);
            }
            out.push_str("| status | meaning |\n|---|---|\n");
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let response = resolved(document, response);
                let content = response["content"]["application/json"]["schema"].as_object().map(|_| {
                    let schema = &response["content"]["application/json"]["schema"];
                    if status == "200" { format!(" {}", kind(schema)) } else { String::new() }
                });
                let _ =
                    writeln!(out, "| {status} | {}{} |", text(&response["description"]), content.unwrap_or_default());
            }
            out.push('\n');
        }
    }
    out.push_str("# Objects\n\n");
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        if name.ends_with("Request") {
            continue; // described at its path
        }
        let _ = write!(out, "## {name}\n\n");
        if let Some(meaning) = schema["description"].as_str() {
            let _ = write!(out, "{}\n\n", wrapped("", meaning));
        }
        match schema["anyOf"].as_array() {
            Some(kinds) => {
                for kind_of in kinds.iter().filter(|k| k["type"] != "null") {
                    let _ = writeln!(out, "{}", wrapped("- ", &kind(kind_of)));
                    for (key, property) in kind_of["properties"].as_object().into_iter().flatten() {
                        if let Some(meaning) = property["description"].as_str() {
                            let _ = writeln!(out, "{}", wrapped("  - ", &format!("`{key}`: {meaning}")));
                        }
                    }
                }
                out.push('\n');
            }
            None => table(schema, &mut out),
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[test]
fn the_reference_is_made_from_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let made = page(&document());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("written");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == made, "docs/api.md is stale: UPDATE_DOCS=1 cargo test -p selfspec-server rewrites it");
}
