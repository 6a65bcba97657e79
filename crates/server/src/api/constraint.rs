//! What an answer is held to: from the format and the functions of a request to a grammar.
//!
//! Calls that must be made are written by a grammar in the model's own style: the tags, a function's name, and arguments by its schema.
//! Calls that may be made are free, and so is text, unless a format holds for it: then an answer is of that format, or calls.

use selfspec_engine::EngineError;
use selfspec_text::{Grammar, GrammarSource, Tokenizer, ToolStyle, one_line};
use serde_json::{Value, json};

use crate::api::format::Format;
use crate::api::tools::{Tool, Tools};
use crate::app::App;
use crate::error::ApiError;

/// A grammar's source, and the field to name when it is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constraint {
    pub(crate) source: GrammarSource,
    pub(crate) param: &'static str,
}

impl Constraint {
    /// What a request asks for; `None`: anything may be said.
    pub(crate) fn of(
        format: &Format,
        tools: &Tools,
        style: ToolStyle,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<Self>, ApiError> {
        let calls = || calls(tools, style, tokenizer);
        if tools.must {
            let source = GrammarSource::Lark(format!("start: calls\n{}", calls()));
            return Ok(Some(Constraint { source, param: "tools" }));
        }
        let source = match format {
            Format::Text => return Ok(None),
            Format::Object => GrammarSource::JsonObject,
            Format::Schema(schema) => GrammarSource::JsonSchema(schema.clone()),
            Format::Regex(pattern) => GrammarSource::Regex(pattern.clone()),
            Format::Lark(grammar) => GrammarSource::Lark(grammar.clone()),
        };
        if tools.allowed.is_empty() {
            return Ok(Some(Constraint { source, param: format.param() }));
        }
        let schema = match source {
            GrammarSource::JsonObject => json!({ "type": "object" }),
            GrammarSource::JsonSchema(schema) => schema,
            GrammarSource::Regex(_) | GrammarSource::Lark(_) => {
                let why =
                    "with functions that may be called it must be JSON; \"tool_choice\": \"none\" leaves them aside";
                return Err(ApiError::field(format.param(), why));
            }
        };
        let source = format!("start: calls | content\ncontent: %json {}\n{}", one_line(schema), calls());
        Ok(Some(Constraint { source: GrammarSource::Lark(source), param: format.param() }))
    }
}

/// The rule `calls`: one call, or several where the request says that there may be.
fn calls(tools: &Tools, style: ToolStyle, tokenizer: Option<&Tokenizer>) -> String {
    let several = tools.several == Some(true);
    let calls = match (style, several) {
        (_, false) => "calls: call\n",
        (ToolStyle::Llama3, true) => "calls: call (\"; \" call)*\n",
        (ToolStyle::Hermes, true) => "calls: call (\"\\n\" call)*\n",
        (ToolStyle::Json, true) => "calls: call | \"[\" call (\", \" call)* \"]\"\n",
    };
    let mut rules = calls.to_owned();
    let names: Vec<String> = (0..tools.allowed.len()).map(|i| format!("call_{i}")).collect();
    rules.push_str(&format!("call: {}\n", names.join(" | ")));
    let (open, close) = match (style, style.opening(), style.closing()) {
        (ToolStyle::Hermes, Some(open), Some(close)) => {
            (format!("{} \"\\n\" ", tag(open, tokenizer)), format!(" \"\\n\" {}", tag(close, tokenizer)))
        }
        _ => (String::new(), String::new()),
    };
    for (i, tool) in tools.callable().enumerate() {
        // In the pieces that JSON is read in: a longer one would hide an object of the format that begins like a call.
        let (name, arguments) = (format!("\"{}\"", tool.name), format!("\"{}\"", style.arguments()));
        let pieces = ["{", "\"name\"", ": ", &name, ", ", &arguments, ": "];
        let head = pieces.map(literal).join(" ");
        rules.push_str(&format!("call_{i}: {open}{head} arguments_{i} \"}}\"{close}\n"));
        rules.push_str(&format!("arguments_{i}: %json {}\n", schema_of(tool)));
    }
    rules
}

/// The schema of a call's arguments: an object in any case, of the arguments that it names unless it says that there may be others.
fn schema_of(tool: &Tool) -> Value {
    let mut schema = tool.parameters.clone();
    let says = ["type", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.contains_key(*key));
    if !says {
        schema.insert("type".to_owned(), "object".into());
    }
    if schema.contains_key("properties") {
        schema.entry("additionalProperties").or_insert(false.into());
    }
    one_line(schema.into())
}

/// A tag in a rule: a token where the vocabulary has it as a control token, else its letters.
fn tag(text: &str, tokenizer: Option<&Tokenizer>) -> String {
    match tokenizer.and_then(|tokenizer| tokenizer.control_id(text)) {
        Some(id) => format!("<[{id}]>"),
        None => literal(text),
    }
}

/// A text as a string of the grammar, which are those of JSON.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Compiles what a request is held to, on a thread that may block.
pub(crate) async fn grammar_of(app: &App, constraint: Option<Constraint>) -> Result<Option<Grammar>, ApiError> {
    let Some(Constraint { source, param }) = constraint else { return Ok(None) };
    let engine = app.engine().clone();
    let compiled = tokio::task::spawn_blocking(move || engine.grammar(&source)).await;
    match compiled.map_err(|_| ApiError::internal("the compiler of grammars ended"))? {
        Ok(grammar) => Ok(Some(grammar)),
        Err(EngineError::Text(error)) => Err(ApiError::field(param, error.to_string())),
        Err(error) => Err(error.into()),
    }
}
