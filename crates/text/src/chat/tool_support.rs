//! What a chat template does with tools, found by rendering small conversations.

use serde_json::{Map, Value as Json, json};

use crate::chat::message::{CallShape, Message};
use crate::tools::call::ToolCall;

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
    /// Finds it out with `text`, which renders a conversation with these variables and calls of
    /// this shape; an empty text where the template refuses it.
    pub(crate) fn probe(text: impl Fn(&[Message], &Map<String, Json>, CallShape) -> String) -> ToolSupport {
        let user = Message::new("user", "Hello");
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
