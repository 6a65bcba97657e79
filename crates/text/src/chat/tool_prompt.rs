//! Prompts of conversations with tools, also for templates that do not know tools.

use serde_json::{Map, Value as Json};

use crate::chat::message::Message;
use crate::chat::template::ChatTemplate;
use crate::chat::tool_support::ToolSupport;
use crate::error::TextError;
use crate::tokenizer::rendered_prompt::RenderedPrompt;
use crate::tools::call::ToolCall;
use crate::tools::style::ToolStyle;

impl ChatTemplate {
    /// How the model writes calls, as far as the template shows it.
    pub fn tool_style(&self) -> ToolStyle {
        ToolStyle::of_template(self.source())
    }

    /// The spellings of the tokens around the model's reasoning, if the template shows that the
    /// model reasons.
    pub fn reasoning_marks(&self) -> Option<[&'static str; 2]> {
        let marks = ["<think>", "</think>"];
        marks.iter().any(|mark| self.source().contains(mark)).then_some(marks)
    }

    /// Renders a chat whose assistant may call functions, with a prompt for its answer. `tools` are
    /// as OpenAI's API has them. What the template does not know of them is put into words: the
    /// functions into the system message, calls and results into turns.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_tools(
        &self,
        messages: &[Message],
        tools: &[Json],
        style: ToolStyle,
        extra: &Map<String, Json>,
    ) -> Result<RenderedPrompt, TextError> {
        let support = self.tool_support();
        let apart = if support.calls && !support.several { one_by_one(messages) } else { messages.to_vec() };
        let mut messages = in_words(&apart, support, style);
        let mut extra = extra.clone();
        if support.tools && !tools.is_empty() {
            extra.insert("tools".into(), tools.into());
        } else if !tools.is_empty() {
            describe(&mut messages, &description(tools, style), support);
        }
        self.render(&messages, true, &extra)
    }
}

/// The messages, with a turn of several calls taken apart into one for each, with its result behind
/// it.
fn one_by_one(messages: &[Message]) -> Vec<Message> {
    let mut out = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        if message.tool_calls.len() < 2 {
            out.push(message.clone());
            continue;
        }
        let (results, after) = rest.split_at(rest.iter().take_while(|m| m.role == "tool").count());
        rest = after;
        let is_of = |result: &Message, call: &ToolCall| result.tool_call_id.as_ref() == Some(&call.id);
        for (i, call) in message.tool_calls.iter().enumerate() {
            let content = if i == 0 { message.content.as_str() } else { "" };
            let reasoning = message.reasoning.clone().filter(|_| i == 0);
            let tool_calls = vec![call.clone()];
            out.push(Message { reasoning, tool_calls, ..Message::new(message.role.as_str(), content) });
            out.extend(results.iter().filter(|result| is_of(result, call)).cloned());
        }
        let stray = |result: &&Message| !message.tool_calls.iter().any(|call| is_of(result, call));
        out.extend(results.iter().filter(stray).cloned());
    }
    out
}

/// The messages, with what the template does not know of calls and results as text. Results that
/// follow each other become one turn.
fn in_words(messages: &[Message], support: &ToolSupport, style: ToolStyle) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut after_result = false;
    for message in messages {
        let result = message.role == "tool" && !support.results;
        if result {
            let of = message.name.as_deref().map(|name| format!(" of {name}")).unwrap_or_default();
            let text = format!("Result{of}: {}", message.content);
            match out.last_mut().filter(|_| after_result) {
                Some(last) => last.content = format!("{}\n{text}", last.content),
                None => out.push(Message::new("user", text)),
            }
        } else if !message.tool_calls.is_empty() && !support.calls {
            let calls = style.write(&message.tool_calls);
            let between = if message.content.is_empty() { "" } else { "\n" };
            let content = format!("{}{between}{calls}", message.content);
            out.push(Message { reasoning: message.reasoning.clone(), ..Message::new(message.role.as_str(), content) });
        } else {
            out.push(message.clone());
        }
        after_result = result;
    }
    out
}

/// The functions in words.
fn description(tools: &[Json], style: ToolStyle) -> String {
    let mut text = "You can call functions. Each is given with the JSON schema of its parameters:\n".to_owned();
    for tool in tools {
        text.push_str(&tool["function"].to_string());
        text.push('\n');
    }
    text.push_str(style.instruction());
    text.push_str("\nIf no function helps, answer in plain words.");
    text
}

/// Puts a text into the system message, or before the user's first words where the template takes
/// none.
fn describe(messages: &mut Vec<Message>, text: &str, support: &ToolSupport) {
    match messages.iter_mut().find(|m| m.role == if support.system { "system" } else { "user" }) {
        Some(system) if support.system => system.content = format!("{}\n\n{text}", system.content),
        Some(user) => user.content = format!("{text}\n\n{}", user.content),
        None => messages.insert(0, Message::new(if support.system { "system" } else { "user" }, text)),
    }
}
