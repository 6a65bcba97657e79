//! What a chat template makes of tools, and how a chat is put to one that does not know them.

use serde_json::{Map, Value as Json, json};

use crate::error::TextError;
use crate::message::{CallShape, Message, ToolCall};
use crate::prompt::RenderedPrompt;
use crate::template::ChatTemplate;
use crate::tool_style::ToolStyle;

/// What a chat template makes of tools, as renderings of small conversations show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSupport {
    /// It tells the model which functions there are.
    pub tools: bool,
    /// It writes the calls of earlier turns.
    pub calls: bool,
    /// It writes several calls of one turn.
    pub several: bool,
    /// It writes the results of calls.
    pub results: bool,
    /// It takes a system message.
    pub system: bool,
    shape: CallShape,
}

/// Words that no template writes of itself.
const FUNCTION: &str = "probe_function";
const VALUE: &str = "probe_value";
const SECOND: &str = "probe_second";
const RESULT: &str = "probe_result";
const SYSTEM: &str = "probe_system";

impl ToolSupport {
    pub(crate) fn of(template: &ChatTemplate) -> ToolSupport {
        let user = Message::new("user", "Hello");
        let text = |messages: &[Message], tools: &Map<String, Json>, shape| {
            let prompt = template.render_calls(messages, true, tools, shape);
            prompt.map(|p| p.text().to_owned()).unwrap_or_default()
        };
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "string", "description": "A letter" } } });
        let function = json!({ "name": FUNCTION, "description": "A function", "parameters": schema });
        let mut with = Map::new();
        with.insert("tools".into(), json!([{ "type": "function", "function": function }]));
        let usual = CallShape::default();
        let tools = text(std::slice::from_ref(&user), &with, usual).contains(FUNCTION);

        // A question, a call with each of the values, and their results.
        let chat = |values: &[&str]| {
            let id = |i: usize| format!("call_0123456789abcdef0123456{i}");
            let call = |(i, value): (usize, &&str)| {
                let arguments = [("a".to_owned(), (*value).into())].into_iter().collect();
                ToolCall { id: id(i), name: FUNCTION.to_owned(), arguments }
            };
            let calls = values.iter().enumerate().map(call).collect();
            let mut chat = vec![user.clone(), Message { tool_calls: calls, ..Message::new("assistant", "") }];
            let name = Some(FUNCTION.to_owned());
            let result = |i| Message { tool_call_id: Some(id(i)), name: name.clone(), ..Message::new("tool", RESULT) };
            chat.extend((0..values.len()).map(result));
            chat
        };
        let kinds = [(true, false), (true, true), (false, false), (false, true)];
        let shapes = [false, true].map(|short_ids| kinds.map(|(object, null)| CallShape { object, null, short_ids }));
        let found = shapes.into_iter().flatten().find_map(|shape| {
            let text = text(&chat(&[VALUE]), &Map::new(), shape);
            // A template that prints an object as it is, in Python's way, means the text of one.
            let printed = text.contains(&format!("{{'a': '{VALUE}'}}"));
            (text.contains(FUNCTION) && text.contains(VALUE) && !printed).then_some((shape, text))
        });
        let several = found.as_ref().is_some_and(|(shape, _)| {
            let text = text(&chat(&[VALUE, SECOND]), &Map::new(), *shape);
            text.contains(VALUE) && text.contains(SECOND)
        });
        let system = text(&[Message::new("system", SYSTEM), user.clone()], &Map::new(), usual).contains(SYSTEM);
        ToolSupport {
            tools,
            calls: found.is_some(),
            several,
            results: found.as_ref().is_some_and(|(_, text)| text.contains(RESULT)),
            system,
            shape: found.map_or(usual, |(shape, _)| shape),
        }
    }

    /// How it wants calls.
    pub(crate) fn shape(&self) -> CallShape {
        self.shape
    }
}

impl ChatTemplate {
    /// How the model writes calls, as far as the template shows it.
    pub fn tool_style(&self) -> ToolStyle {
        ToolStyle::of_template(self.source())
    }

    /// Renders a chat whose assistant may call functions, with a prompt for its answer. `tools` are as OpenAI's API has them. What the
    /// template does not know of them is put into words: the functions into the system message, calls and results into turns.
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

/// The messages, with a turn of several calls taken apart into one for each, with its result behind it.
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
            out.push(Message { tool_calls: vec![call.clone()], ..Message::new(message.role.as_str(), content) });
            out.extend(results.iter().filter(|result| is_of(result, call)).cloned());
        }
        let stray = |result: &&Message| !message.tool_calls.iter().any(|call| is_of(result, call));
        out.extend(results.iter().filter(stray).cloned());
    }
    out
}

/// The messages, with what the template does not know of calls and results as text. Results that follow each other become one turn.
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
            out.push(Message::new(message.role.as_str(), format!("{}{between}{calls}", message.content)));
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

/// Puts a text into the system message, or before the user's first words where the template takes none.
fn describe(messages: &mut Vec<Message>, text: &str, support: &ToolSupport) {
    match messages.iter_mut().find(|m| m.role == if support.system { "system" } else { "user" }) {
        Some(system) if support.system => system.content = format!("{}\n\n{text}", system.content),
        Some(user) => user.content = format!("{text}\n\n{}", user.content),
        None => messages.insert(0, Message::new(if support.system { "system" } else { "user" }, text)),
    }
}
