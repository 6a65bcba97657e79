//! The field `input`: text, or items that become the messages of a conversation.

use selfspec_text::{Message, ToolCall};
use serde_json::Value;

use crate::api::openai::messages::{arguments, name_tool_results};
use crate::error::ApiError;
use crate::http::limits::{MOST_CALLS, MOST_MESSAGES};

/// The messages of `input`, after the instructions.
pub(super) fn messages(instructions: Option<String>, input: Option<Value>) -> Result<Vec<Message>, ApiError> {
    let mut turns = Turns { messages: Vec::new(), open: false };
    turns.messages.extend(instructions.map(|text| Message::new("system", text)));
    match input {
        None => return Err(ApiError::field("input", "missing")),
        Some(Value::String(text)) => turns.messages.push(Message::new("user", text)),
        Some(Value::Array(items)) if items.is_empty() || items.len() > MOST_MESSAGES => {
            let why = format!("expected 1 to {MOST_MESSAGES} items, got {}", items.len());
            return Err(ApiError::field("input", why));
        }
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                turns.add(&format!("input[{i}]"), item)?;
            }
        }
        Some(_) => return Err(ApiError::field("input", "expected a string or an array of items")),
    }
    name_tool_results(&mut turns.messages);
    Ok(turns.messages)
}

/// The messages so far. What the assistant reasoned, said and called are items of their own, and
/// one message.
struct Turns {
    messages: Vec<Message>,
    open: bool, // the last message is the assistant's, and more of it may come
}

impl Turns {
    fn add(&mut self, at: &str, item: &Value) -> Result<(), ApiError> {
        let wrong = |what: &str, why: &str| ApiError::field(format!("{at}{what}"), why);
        let string = |field: &str| match item[field].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(wrong(&format!(".{field}"), "expected a string")),
        };
        if !item.is_object() {
            return Err(wrong("", "expected an object"));
        }
        match item["type"].as_str() {
            Some("message") | None if item["type"].is_string() || item["type"].is_null() => self.message(at, item),
            Some("function_call") => {
                let arguments = arguments(&format!("{at}.arguments"), &item["arguments"])?;
                let call = ToolCall { id: string("call_id")?, name: string("name")?, arguments };
                let turn = self.assistant();
                if turn.tool_calls.len() >= MOST_CALLS {
                    return Err(wrong("", &format!("more than {MOST_CALLS} calls in a row")));
                }
                turn.tool_calls.push(call);
                Ok(())
            }
            Some("function_call_output") => {
                let content = text(&format!("{at}.output"), &item["output"], &["input_text", "output_text"])?;
                let tool_call_id = Some(string("call_id")?);
                self.open = false;
                self.messages.push(Message { tool_call_id, ..Message::new("tool", content) });
                Ok(())
            }
            Some("reasoning") => {
                let part = |field: &str, kind: &str| match &item[field] {
                    Value::Null => Ok(String::new()),
                    parts => text(&format!("{at}.{field}"), parts, &[kind]),
                };
                let (content, summary) = (part("content", "reasoning_text")?, part("summary", "summary_text")?);
                let reasoning = if content.is_empty() { summary } else { content };
                self.open = false;
                // An item of another server may hold nothing that can be read here.
                if !reasoning.is_empty() {
                    self.assistant().reasoning = Some(reasoning);
                }
                Ok(())
            }
            Some("item_reference") => Err(wrong(
                ".type",
                "this server keeps no items: send the item itself (clients do with \"store\": false)",
            )),
            kind => Err(wrong(".type", &format!("items of type {:?} are not supported", kind.unwrap_or_default()))),
        }
    }

    fn message(&mut self, at: &str, item: &Value) -> Result<(), ApiError> {
        let at_role = || format!("{at}.role");
        let role = item["role"].as_str().ok_or_else(|| ApiError::field(at_role(), "expected a string"))?;
        let content =
            text(&format!("{at}.content"), &item["content"], &["input_text", "output_text", "text", "refusal"])?;
        match role {
            "user" | "system" | "developer" => {
                let role = if role == "developer" { "system" } else { role };
                self.open = false;
                self.messages.push(Message::new(role, content));
            }
            "assistant" => {
                // After its reasoning it is the same turn.
                let begun = |turn: &Message| !turn.content.is_empty() || !turn.tool_calls.is_empty();
                if self.messages.last().is_some_and(begun) {
                    self.open = false;
                }
                self.assistant().content = content;
            }
            other => {
                let why = format!("expected user, assistant, system or developer, got {other:?}");
                return Err(ApiError::field(at_role(), why));
            }
        }
        Ok(())
    }

    /// The assistant's turn under way, or a new one.
    fn assistant(&mut self) -> &mut Message {
        if !self.open {
            self.messages.push(Message::new("assistant", ""));
            self.open = true;
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

/// A text: a string, or an array of parts of these kinds.
fn text(at: &str, value: &Value, kinds: &[&str]) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::field(at, "expected a string or an array of parts")),
    };
    let part = |(p, part): (usize, &Value)| {
        let kind = part["type"].as_str().unwrap_or("without type");
        if !kinds.contains(&kind) {
            let why = format!("unsupported part of type {kind:?}: only text is supported");
            return Err(ApiError::field(format!("{at}[{p}]"), why));
        }
        let field = if kind == "refusal" { "refusal" } else { "text" };
        let text = part[field].as_str();
        text.map(str::to_owned).ok_or_else(|| ApiError::field(format!("{at}[{p}].{field}"), "expected a string"))
    };
    parts.iter().enumerate().map(part).collect()
}
