//! The fields `system` and `messages`: content blocks become the messages of a conversation.

use selfspec_text::{Message, ToolCall};
use serde_json::Value;

use crate::api::openai::messages::name_tool_results;
use crate::error::ApiError;
use crate::http::limits::{MOST_CALLS, MOST_MESSAGES};

/// The messages of the conversation.
pub(super) fn messages(system: Option<&Value>, messages: Option<&Value>) -> Result<Vec<Message>, ApiError> {
    let mut read = Vec::new();
    if let Some(system) = system {
        read.push(Message::new("system", text("system", system)?));
    }
    let Some(messages) = messages else { return Err(ApiError::field("messages", "missing")) };
    let Some(messages) = messages.as_array() else { return Err(ApiError::field("messages", "expected an array")) };
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        let why = format!("expected 1 to {MOST_MESSAGES} messages, got {}", messages.len());
        return Err(ApiError::field("messages", why));
    }
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let content = &message["content"];
        match message["role"].as_str() {
            Some("user") => user(&format!("{at}.content"), content, &mut read)?,
            Some("assistant") if i + 1 == messages.len() => {
                return Err(ApiError::field(
                    at,
                    "the last message must be the user's: a begun answer is not continued",
                ));
            }
            Some("assistant") => read.push(assistant(&format!("{at}.content"), content)?),
            _ => return Err(ApiError::field(format!("{at}.role"), "expected \"user\" or \"assistant\"")),
        }
    }
    name_tool_results(&mut read);
    Ok(read)
}

/// A text: a string, or an array of text blocks.
fn text(at: &str, content: &Value) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            blocks.iter().enumerate().map(|(b, block)| block_text(&format!("{at}[{b}]"), block)).collect()
        }
        _ => Err(ApiError::field(at, "expected a string or an array of blocks")),
    }
}

/// The text of a text block.
fn block_text(at: &str, block: &Value) -> Result<String, ApiError> {
    match block["type"].as_str() {
        Some("text") => string(at, "text", block),
        kind => {
            let kind = kind.unwrap_or("without type");
            Err(ApiError::field(at, format!("unsupported block of type {kind:?}: only text is supported here")))
        }
    }
}

fn string(at: &str, field: &str, block: &Value) -> Result<String, ApiError> {
    let text = block[field].as_str();
    text.map(str::to_owned).ok_or_else(|| ApiError::field(format!("{at}.{field}"), "expected a string"))
}

/// A user's message: the results of tools, each a message, and text.
fn user(at: &str, content: &Value, read: &mut Vec<Message>) -> Result<(), ApiError> {
    let Value::Array(blocks) = content else {
        read.push(Message::new("user", text(at, content)?));
        return Ok(());
    };
    let mut words: Option<String> = None;
    for (b, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{b}]");
        if block["type"] != "tool_result" {
            words.get_or_insert_default().push_str(&block_text(&at, block)?);
            continue;
        }
        read.extend(words.take().map(|words| Message::new("user", words)));
        let content = match &block["content"] {
            Value::Null => String::new(),
            content => text(&format!("{at}.content"), content)?,
        };
        // Templates have no field for it.
        let content = match &block["is_error"] {
            Value::Bool(true) => format!("Error: {content}"),
            Value::Bool(false) | Value::Null => content,
            _ => return Err(ApiError::field(format!("{at}.is_error"), "expected true or false")),
        };
        let tool_call_id = Some(string(&at, "tool_use_id", block)?);
        read.push(Message { tool_call_id, ..Message::new("tool", content) });
    }
    read.extend(words.map(|words| Message::new("user", words)));
    Ok(())
}

/// A message of the assistant: what it reasoned, said and called.
fn assistant(at: &str, content: &Value) -> Result<Message, ApiError> {
    let mut message = Message::new("assistant", "");
    let Value::Array(blocks) = content else {
        message.content = text(at, content)?;
        return Ok(message);
    };
    for (b, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{b}]");
        match block["type"].as_str() {
            Some("thinking") => {
                message.reasoning.get_or_insert_default().push_str(&string(&at, "thinking", block)?);
            }
            Some("redacted_thinking") => {} // encrypted: nobody but its server can read it
            Some("tool_use") => {
                let Value::Object(arguments) = &block["input"] else {
                    return Err(ApiError::field(format!("{at}.input"), "expected an object"));
                };
                if message.tool_calls.len() >= MOST_CALLS {
                    return Err(ApiError::field(at, format!("more than {MOST_CALLS} calls in a message")));
                }
                let (id, name) = (string(&at, "id", block)?, string(&at, "name", block)?);
                message.tool_calls.push(ToolCall { id, name, arguments: arguments.clone() });
            }
            _ => message.content.push_str(&block_text(&at, block)?),
        }
    }
    Ok(message)
}
