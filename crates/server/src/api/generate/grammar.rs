//! The grammar that an answer must follow, from the format and the tools of a request.
//!
//! Tool calls that are required follow a grammar in the model's own style: the tags, a function's
//! name, and arguments of its schema. Optional tool calls and text are not constrained. If the
//! request has a format, an answer is either text of that format or tool calls.

use std::time::Instant;

use selfspec_engine::{Engine, EngineError};
use selfspec_text::{Grammar, GrammarSource, Tokenizer, ToolStyle, one_line};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api::request::{AnswerFormat, GenerationRequest, OfferedTool, ToolOffer};
use crate::app_state::AppState;
use crate::error::ApiError;

/// The source of a grammar, and the field to name when it cannot be compiled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GrammarConstraint {
    pub(crate) source: GrammarSource,
    field: &'static str,
}

impl GrammarConstraint {
    /// The constraint of a request; `None`: the answer is free.
    fn new(
        request: &GenerationRequest,
        style: ToolStyle,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Option<Self>, ApiError> {
        let tools = &request.tools;
        let calls = || calls(tools, style, tokenizer);
        if tools.required {
            let source = GrammarSource::Lark(format!("start: calls\n{}", calls()));
            return Ok(Some(GrammarConstraint { source, field: "tools" }));
        }
        let field = request.format_field;
        let source = match &request.format {
            AnswerFormat::Text => return Ok(None),
            AnswerFormat::JsonObject => GrammarSource::JsonObject,
            AnswerFormat::JsonSchema(schema) => GrammarSource::JsonSchema(schema.clone()),
            AnswerFormat::Regex(pattern) => GrammarSource::Regex(pattern.clone()),
            AnswerFormat::Lark(grammar) => GrammarSource::Lark(grammar.clone()),
        };
        if tools.allowed.is_empty() {
            return Ok(Some(GrammarConstraint { source, field }));
        }
        let schema = match source {
            GrammarSource::JsonObject => json!({ "type": "object" }),
            GrammarSource::JsonSchema(schema) => schema,
            GrammarSource::Regex(_) | GrammarSource::Lark(_) => {
                let why = "with tools that may be called the format must be JSON; \"tool_choice\": \"none\" disables the tools";
                return Err(ApiError::field(field, why));
            }
        };
        let source = format!("start: calls | content\ncontent: %json {}\n{}", one_line(schema), calls());
        Ok(Some(GrammarConstraint { source: GrammarSource::Lark(source), field }))
    }

    /// Compiles the grammar, or waits for those before it. Dropping the future cancels the wait.
    ///
    /// # Errors
    /// The grammar is refused, and the error names the field; too many requests wait; or `deadline`
    /// passes.
    pub(crate) async fn compile(self, engine: &Engine, deadline: Option<Instant>) -> Result<Grammar, ApiError> {
        let (sender, receiver) = oneshot::channel();
        let field = self.field;
        let answer = move |result| drop(sender.send(result)); // nobody may wait any more
        let ticket = engine.request_grammar(self.source, answer).map_err(|error| refused(field, error))?;
        let compiled = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), receiver).await,
            None => Ok(receiver.await),
        };
        drop(ticket);
        let compiled = compiled.map_err(|_| EngineError::DeadlineInQueue)?.unwrap_or(Err(EngineError::Stopped));
        compiled.map_err(|error| refused(field, error))
    }

    /// The error of a request with this grammar that the engine refuses; the prompt is in
    /// `prompt_field`.
    pub(crate) fn refused(&self, error: EngineError, prompt_field: &str) -> ApiError {
        match error {
            EngineError::Text(_) => refused(self.field, error),
            other => ApiError::of_prompt(other, prompt_field),
        }
    }
}

fn refused(field: &'static str, error: EngineError) -> ApiError {
    match error {
        EngineError::Text(error) => ApiError::field(field, error.to_string()),
        other => other.into(),
    }
}

/// The rule `calls`: one call, or several if the request allows parallel calls.
fn calls(tools: &ToolOffer, style: ToolStyle, tokenizer: Option<&Tokenizer>) -> String {
    let parallel = tools.parallel == Some(true);
    let calls = match (style, parallel) {
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
        // Split as JSON is tokenized: a longer literal would exclude an object of the format with
        // the same prefix.
        let (name, arguments) = (format!("\"{}\"", tool.name), format!("\"{}\"", style.arguments()));
        let pieces = ["{", "\"name\"", ": ", &name, ", ", &arguments, ": "];
        let head = pieces.map(literal).join(" ");
        rules.push_str(&format!("call_{i}: {open}{head} arguments_{i} \"}}\"{close}\n"));
        rules.push_str(&format!("arguments_{i}: %json {}\n", schema_of(tool)));
    }
    rules
}

/// The schema of a call's arguments: always an object, and without other properties than the named
/// ones unless it allows them.
fn schema_of(tool: &OfferedTool) -> Value {
    let mut schema = tool.parameters.clone();
    let has_type = ["type", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.contains_key(*key));
    if !has_type {
        schema.insert("type".to_owned(), "object".into());
    }
    if schema.contains_key("properties") {
        schema.entry("additionalProperties").or_insert(false.into());
    }
    one_line(schema.into())
}

/// A tag in a rule: the control token if the vocabulary has it, else the spelled text.
fn tag(text: &str, tokenizer: Option<&Tokenizer>) -> String {
    match tokenizer.and_then(|tokenizer| tokenizer.control_id(text)) {
        Some(id) => format!("<[{id}]>"),
        None => literal(text),
    }
}

/// A text as a string of the grammar, whose strings are those of JSON.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// The grammar that a request asks for; `None`: the answer is free.
///
/// # Errors
/// The format does not fit the tools; the error names the field.
pub(crate) fn constraint(app: &AppState, request: &GenerationRequest) -> Result<Option<GrammarConstraint>, ApiError> {
    let tokenizer = app.engine().tokenizer().map(|tokenizer| &**tokenizer);
    GrammarConstraint::new(request, app.tool_style(), tokenizer)
}
