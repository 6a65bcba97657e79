//! Chat templates in Jinja.

use std::sync::OnceLock;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::chat::guard::{Guard, sentinels};
use crate::chat::jinja;
use crate::chat::message::{CallShape, Message};
use crate::chat::tool_support::ToolSupport;
use crate::error::TextError;
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::rendered_prompt::RenderedPrompt;

/// A model's chat template: Jinja, set up as `transformers` does it.
///
/// The template is a program from an untrusted file: it has no access to anything but its
/// arguments, and a bounded number of steps and bytes. Known gap: minijinja 3.1 does not count what
/// `+` on lists takes once more than 32 sums lie within each other, nor what `~`, `==` and keys
/// take of lists that hold a list twice, that holds a list twice, and so on; both can be made to
/// grow without bound.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
    /// All characters of the source above U+FFFF and among the sentinels.
    source: String,
    guard: Option<Guard>,
    tools: OnceLock<ToolSupport>,
}

/// The name in minijinja's environment; it shows in no message.
const NAME: &str = "chat_template";
/// Steps that one rendering may take, and units of 64 bytes that it may make: 32 MB. A chat of a
/// megabyte in a thousand turns takes 150 thousand.
const FUEL: u64 = 500_000;

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the spellings that it sees as `bos_token` and
    /// `eos_token`.
    ///
    /// Prefer [`Tokenizer::chat_template`]: a template made here does not know the control tokens,
    /// and [`Tokenizer::encode_prompt`] refuses its prompts when a message spells one. See
    /// [`ChatTemplate::with_control_tokens`].
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`] with the line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate, TextError> {
        let mut env = Environment::new();
        jinja::set_up(&mut env);
        env.set_fuel(Some(FUEL));
        env.add_template_owned(NAME, jinja::without_generation_tags(source)).map_err(|e| {
            let (line, what) = jinja::explain(&e);
            TextError::TemplateSyntax { line, what }
        })?;
        Ok(ChatTemplate {
            env,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            source: source.to_owned(),
            guard: None,
            tools: OnceLock::new(),
        })
    }

    /// Makes messages that spell one of these tokens keep it as text.
    ///
    /// # Errors
    /// [`TextError::BadVocab`] when the spellings are too many for a matcher.
    pub fn with_control_tokens<'s>(
        mut self,
        spellings: impl Iterator<Item = &'s str>,
    ) -> Result<ChatTemplate, TextError> {
        self.guard = Some(Guard::new(spellings)?);
        Ok(self)
    }

    /// What the template makes of tools; found out at the first call, by rendering small
    /// conversations.
    pub fn tool_support(&self) -> &ToolSupport {
        self.tools.get_or_init(|| {
            ToolSupport::probe(|messages, variables, shape| {
                let prompt = self.render_calls(messages, true, variables, shape);
                prompt.map(|prompt| prompt.text().to_owned()).unwrap_or_default()
            })
        })
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Renders a chat. `extra` holds further variables (`tools`, `enable_thinking`, ...);
    /// `add_generation_prompt` asks for the words that begin an answer.
    ///
    /// # Errors
    /// [`TextError::TemplateFailed`] with the line and the template's own words where it called
    /// `raise_exception`.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        extra: &Map<String, Json>,
    ) -> Result<RenderedPrompt, TextError> {
        let calls = messages.iter().any(|m| !m.tool_calls.is_empty());
        let shape = if calls { self.tool_support().shape() } else { CallShape::default() };
        self.render_calls(messages, add_generation_prompt, extra, shape)
    }

    /// The same, with the assistant's calls in this shape.
    fn render_calls(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        extra: &Map<String, Json>,
        shape: CallShape,
    ) -> Result<RenderedPrompt, TextError> {
        let turns: Vec<Map<String, Json>> = messages.iter().map(|m| m.json(shape)).collect();
        let marker = self.marker(&turns, extra)?;
        let turn = |turn: &Map<String, Json>| {
            let field = |(key, value): (&String, &Json)| Ok((key.clone(), marker.mark_json(value, may_end(key))?));
            Ok(Value::from(Serde(turn.iter().map(field).collect::<Result<Map<_, _>, TextError>>()?)))
        };
        let messages_value: Vec<Value> = turns.iter().map(turn).collect::<Result<_, TextError>>()?;
        // What transformers passes even when the caller gives none.
        let mut context = Map::new();
        context.insert("tools".into(), Json::Null);
        context.insert("documents".into(), Json::Null);
        for (key, value) in extra {
            context.insert(key.clone(), marker.mark_json(value, key == TOOLS)?);
        }
        context.insert("add_generation_prompt".into(), add_generation_prompt.into());
        context.insert("bos_token".into(), self.bos.as_str().into());
        context.insert("eos_token".into(), self.eos.as_str().into());
        context.remove("messages");
        let context = minijinja::context! { messages => messages_value, ..Value::from(Serde(&context)) };

        let failed = |e: minijinja::Error| {
            let (line, what) = jinja::explain(&e);
            let what = match e.kind() {
                ErrorKind::OutOfFuel => format!("the template takes more than {FUEL} steps"),
                _ => what,
            };
            TextError::TemplateFailed { line, what }
        };
        let marked = self.env.get_template(NAME).and_then(|t| t.render(context)).map_err(failed)?;
        let unguarded = match self.guard {
            Some(_) => Vec::new(),
            None => strings(&turns, extra).into_iter().map(|(text, _)| text.to_owned()).collect(),
        };
        Ok(RenderedPrompt::new(marked, marker.sentinel(), unguarded))
    }

    fn marker(&self, turns: &[Map<String, Json>], extra: &Map<String, Json>) -> Result<Marker<'_>, TextError> {
        let Some(guard) = &self.guard else { return Ok(Marker(None)) };
        let strings = strings(turns, extra);
        if !strings.iter().any(|(text, ends)| guard.concerns(text, *ends)) {
            return Ok(Marker(None));
        }
        let sentinel = sentinels()
            .find(|&c| !self.source.contains(c) && !strings.iter().any(|(text, _)| text.contains(c)))
            .ok_or(TextError::NoSentinel)?;
        Ok(Marker(Some((guard, sentinel))))
    }
}

/// The variable with the functions that may be called.
const TOOLS: &str = "tools";

/// Whether a field of a turn is text whose ends the template must not complete to a control token.
/// With the role it means to.
fn may_end(key: &str) -> bool {
    key != "role"
}

/// Every string that the template is given, and whether it must not be completed at its ends.
fn strings<'a>(turns: &'a [Map<String, Json>], extra: &'a Map<String, Json>) -> Vec<(&'a str, bool)> {
    fn walk<'a>(value: &'a Json, ends: bool, out: &mut Vec<(&'a str, bool)>) {
        match value {
            Json::String(s) => out.push((s, ends)),
            Json::Array(items) => items.iter().for_each(|v| walk(v, ends, out)),
            Json::Object(map) => map.iter().for_each(|(k, v)| {
                out.push((k, ends));
                walk(v, ends, out);
            }),
            _ => {}
        }
    }
    let mut out = Vec::new();
    turns.iter().flatten().for_each(|(key, value)| walk(value, may_end(key), &mut out));
    extra.iter().for_each(|(key, value)| walk(value, key == TOOLS, &mut out));
    out
}

/// Marks the strings of one rendering; does nothing when none needs it.
struct Marker<'g>(Option<(&'g Guard, char)>);

impl Marker<'_> {
    fn sentinel(&self) -> Option<char> {
        self.0.map(|(_, sentinel)| sentinel)
    }

    fn mark(&self, text: &str, ends: bool) -> Result<String, TextError> {
        match self.0 {
            Some((guard, sentinel)) if guard.concerns(text, ends) => guard.mark(text, ends, sentinel),
            _ => Ok(text.to_owned()),
        }
    }

    fn mark_json(&self, value: &Json, ends: bool) -> Result<Json, TextError> {
        Ok(match value {
            Json::String(s) => Json::String(self.mark(s, ends)?),
            Json::Array(items) => Json::Array(items.iter().map(|v| self.mark_json(v, ends)).collect::<Result<_, _>>()?),
            Json::Object(map) => {
                let field = |(k, v): (&String, &Json)| Ok((self.mark(k, ends)?, self.mark_json(v, ends)?));
                Json::Object(map.iter().map(field).collect::<Result<_, TextError>>()?)
            }
            other => other.clone(),
        })
    }
}

impl Tokenizer {
    /// Compiles a chat template that knows this tokenizer's control tokens, BOS and EOS.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn chat_template(&self, source: &str) -> Result<ChatTemplate, TextError> {
        let spelling = |id: Option<u32>| id.and_then(|id| self.token_text(id)).unwrap_or_default();
        ChatTemplate::new(source, spelling(self.bos), spelling(self.eos))?
            .with_control_tokens(self.controls.spellings())
    }
}
