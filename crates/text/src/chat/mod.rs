//! Conversations, and the chat templates that turn them into prompts.

pub(crate) mod guard;
pub(crate) mod jinja;
pub(crate) mod message;
pub(crate) mod template;
pub(crate) mod tool_prompt;
pub(crate) mod tool_support;
