//! How a model writes the calls of functions into its answer.

use std::fmt;
use std::str::FromStr;

use serde_json::json;

use crate::tools::call::ToolCall;

/// The ways to write calls that are known here. In each of them the arguments may be called
/// `arguments` or `parameters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolStyle {
    /// `{"name": ..., "parameters": {...}}` at the start of the answer or after `<|python_tag|>`;
    /// several with `;` between them.
    Llama3,
    /// `<tool_call>`, `{"name": ..., "arguments": {...}}` and `</tool_call>`, any number of times.
    Hermes,
    /// An answer that is such an object, or an array of them, and nothing else, perhaps between
    /// fences of Markdown.
    Json,
}

impl ToolStyle {
    /// All of them.
    pub const ALL: [ToolStyle; 3] = [ToolStyle::Llama3, ToolStyle::Hermes, ToolStyle::Json];

    /// The style that a chat template teaches its model; JSON where it teaches none.
    pub fn of_template(source: &str) -> ToolStyle {
        if source.contains("<tool_call>") {
            ToolStyle::Hermes
        } else if source.contains("<|python_tag|>") || (source.contains("ipython") && source.contains("\"parameters\""))
        {
            ToolStyle::Llama3
        } else {
            ToolStyle::Json
        }
    }

    /// What stands before a call; in Llama's style it may be missing.
    pub fn opening(self) -> Option<&'static str> {
        match self {
            ToolStyle::Llama3 => Some("<|python_tag|>"),
            ToolStyle::Hermes => Some("<tool_call>"),
            ToolStyle::Json => None,
        }
    }

    /// What stands after a call.
    pub fn closing(self) -> Option<&'static str> {
        (self == ToolStyle::Hermes).then_some("</tool_call>")
    }

    /// The name of the arguments.
    pub fn arguments(self) -> &'static str {
        match self {
            ToolStyle::Llama3 => "parameters",
            ToolStyle::Hermes | ToolStyle::Json => "arguments",
        }
    }

    /// A model's answer that makes these calls.
    pub(crate) fn write(self, calls: &[ToolCall]) -> String {
        let object = |call: &ToolCall| json!({ "name": call.name, self.arguments(): call.arguments }).to_string();
        let objects: Vec<String> = calls.iter().map(object).collect();
        match (self, objects.as_slice()) {
            (ToolStyle::Hermes, objects) => {
                let call = |object: &String| format!("<tool_call>\n{object}\n</tool_call>");
                objects.iter().map(call).collect::<Vec<_>>().join("\n")
            }
            (ToolStyle::Json, [_, _, ..]) => format!("[{}]", objects.join(", ")),
            _ => objects.join("; "),
        }
    }

    /// What a model is told that was never taught to call functions.
    pub(crate) fn instruction(self) -> &'static str {
        match self {
            ToolStyle::Llama3 => {
                "To call a function, answer with a JSON object and nothing else: \
                {\"name\": the function's name, \"parameters\": an object of its arguments}."
            }
            ToolStyle::Hermes => {
                "To call a function, write a JSON object between tags: \
                <tool_call>\n{\"name\": the function's name, \"arguments\": an object of its arguments}\n</tool_call>"
            }
            ToolStyle::Json => {
                "To call a function, answer with a JSON object and nothing else: \
                {\"name\": the function's name, \"arguments\": an object of its arguments}. \
                To call several, answer with an array of such objects."
            }
        }
    }
}

impl fmt::Display for ToolStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolStyle::Llama3 => "llama3",
            ToolStyle::Hermes => "hermes",
            ToolStyle::Json => "json",
        })
    }
}

impl FromStr for ToolStyle {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let style = ToolStyle::ALL.into_iter().find(|style| style.to_string() == word);
        style.ok_or_else(|| format!("{word:?} is no style: llama3, hermes and json are known"))
    }
}
