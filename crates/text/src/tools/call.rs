//! A call of a function, as a conversation holds it.

use serde_json::{Map, Value as Json};

/// A call of a function that the assistant made.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ToolCall {
    /// What its result refers to it by.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments by name.
    pub arguments: Map<String, Json>,
}
