//! One turn of a chat.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value as Json, json};

use crate::tools::call::ToolCall;

/// One turn of a chat, as plain data.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// "system", "user", "assistant", "tool", or what else the template knows.
    pub role: String,
    /// The text; empty where a turn of the assistant consists of calls.
    pub content: String,
    /// What the assistant reasoned before it answered; templates know it as `reasoning_content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The functions that the assistant called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which call this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Which function this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How a template wants a call's arguments and a turn without text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallShape {
    /// As an object; else as the text of one.
    pub(crate) object: bool,
    /// A turn of calls alone has null for its content; else an empty text.
    pub(crate) null: bool,
    /// Ids are nine letters and digits, as templates of Mistral's ask; else whatever they are.
    pub(crate) short_ids: bool,
}

impl Default for CallShape {
    fn default() -> Self {
        CallShape { object: true, null: false, short_ids: false }
    }
}

impl Message {
    /// A turn of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// The turn as templates expect it. What a turn does not have is left out: templates ask
    /// whether it is defined.
    pub(crate) fn json(&self, shape: CallShape) -> Map<String, Json> {
        let mut turn = Map::new();
        turn.insert("role".into(), self.role.as_str().into());
        let null = shape.null && self.content.is_empty() && !self.tool_calls.is_empty();
        turn.insert("content".into(), if null { Json::Null } else { self.content.as_str().into() });
        if let Some(reasoning) = &self.reasoning {
            turn.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let call = |call: &ToolCall| {
                let arguments = Json::Object(call.arguments.clone());
                let arguments = if shape.object { arguments } else { arguments.to_string().into() };
                let function = json!({ "name": call.name, "arguments": arguments });
                json!({ "id": shape.id(&call.id), "type": "function", "function": function })
            };
            turn.insert("tool_calls".into(), self.tool_calls.iter().map(call).collect());
        }
        if let Some(id) = &self.tool_call_id {
            turn.insert("tool_call_id".into(), shape.id(id).into());
        }
        if let Some(name) = &self.name {
            turn.insert("name".into(), name.as_str().into());
        }
        turn
    }
}

impl CallShape {
    /// An id as the template wants it; the same ids stay the same.
    fn id(self, id: &str) -> String {
        if !self.short_ids || (id.len() == SHORT && id.bytes().all(|b| b.is_ascii_alphanumeric())) {
            return id.to_owned();
        }
        let mut hasher = DefaultHasher::new(); // without a key: a prompt must be the same every time
        id.hash(&mut hasher);
        let mut rest = hasher.finish();
        let digit = |_| {
            let digit = (rest % 36) as u32;
            rest /= 36;
            char::from_digit(digit, 36).unwrap_or('0')
        };
        (0..SHORT).map(digit).collect()
    }
}

/// Letters and digits of a short id.
const SHORT: usize = 9;
