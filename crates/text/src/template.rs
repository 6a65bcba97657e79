use std::borrow::Cow;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind};

use crate::error::TextError;
use crate::guard::{Guard, sentinels};
use crate::jinja;
use crate::prompt::RenderedPrompt;
use crate::tokenizer::Tokenizer;

/// One turn of a chat, as plain data.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// "system", "user", "assistant", "tool", or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// A model's chat template: Jinja, set up as `transformers` does it.
///
/// The template is a program from an untrusted file: it has no access to anything but its arguments, and a bounded number
/// of steps and bytes. Known gap: minijinja 3.1 does not count what `+` on lists takes once more than 32 sums lie within each other, nor what
/// `~`, `==` and keys take of lists that hold a list twice, that holds a list twice, and so on; both can be made to grow without bound.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
    /// All characters of the source above U+FFFF and among the sentinels.
    source: String,
    guard: Option<Guard>,
}

/// The name in minijinja's environment; it shows in no message.
const NAME: &str = "chat_template";
/// Steps that one rendering may take, and units of 64 bytes that it may make: 32 MB. A chat of a megabyte in a thousand turns takes 150
/// thousand.
const FUEL: u64 = 500_000;

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the spellings that it sees as `bos_token` and `eos_token`.
    ///
    /// Prefer [`Tokenizer::chat_template`]: a template made here does not know the control tokens, and
    /// [`Tokenizer::encode_prompt`] refuses its prompts when a message spells one. See [`ChatTemplate::with_control_tokens`].
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
        Ok(ChatTemplate { env, bos: bos.to_owned(), eos: eos.to_owned(), source: source.to_owned(), guard: None })
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

    /// Renders a chat. `extra` holds further variables (`tools`, `enable_thinking`, ...); `add_generation_prompt` asks for the
    /// words that begin an answer.
    ///
    /// # Errors
    /// [`TextError::TemplateFailed`] with the line and the template's own words where it called `raise_exception`.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<RenderedPrompt, TextError> {
        let marker = self.marker(messages, extra)?;
        let messages_value: Vec<Value> = messages
            .iter()
            .map(|m| {
                Ok(Value::from(Serde(Message {
                    role: marker.mark(&m.role, false)?,
                    content: marker.mark(&m.content, true)?,
                })))
            })
            .collect::<Result<_, TextError>>()?;
        // What transformers passes even when the caller gives none.
        let mut context = serde_json::Map::new();
        context.insert("tools".into(), serde_json::Value::Null);
        context.insert("documents".into(), serde_json::Value::Null);
        for (key, value) in extra {
            context.insert(key.clone(), marker.mark_json(value)?);
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
        let unguarded =
            if self.guard.is_some() { Vec::new() } else { strings(messages, extra).map(Cow::into_owned).collect() };
        Ok(RenderedPrompt::new(marked, marker.sentinel(), unguarded))
    }

    fn marker(
        &self,
        messages: &[Message],
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Marker<'_>, TextError> {
        let Some(guard) = &self.guard else { return Ok(Marker(None)) };
        if !messages.iter().any(|m| guard.concerns(&m.role, false) || guard.concerns(&m.content, true))
            && !strings(&[], extra).any(|s| guard.concerns(&s, false))
        {
            return Ok(Marker(None));
        }
        let sentinel = sentinels()
            .find(|&c| !self.source.contains(c) && !strings(messages, extra).any(|s| s.contains(c)))
            .ok_or(TextError::NoSentinel)?;
        Ok(Marker(Some((guard, sentinel))))
    }
}

/// Every string that the template is given.
fn strings<'a>(
    messages: &'a [Message],
    extra: &'a serde_json::Map<String, serde_json::Value>,
) -> impl Iterator<Item = Cow<'a, str>> {
    fn walk<'a>(value: &'a serde_json::Value, out: &mut Vec<&'a str>) {
        match value {
            serde_json::Value::String(s) => out.push(s),
            serde_json::Value::Array(items) => items.iter().for_each(|v| walk(v, out)),
            serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| {
                out.push(k);
                walk(v, out);
            }),
            _ => {}
        }
    }
    let mut out = Vec::new();
    for message in messages {
        out.extend([message.role.as_str(), message.content.as_str()]);
    }
    extra.values().for_each(|v| walk(v, &mut out));
    out.into_iter().map(Cow::Borrowed)
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

    fn mark_json(&self, value: &serde_json::Value) -> Result<serde_json::Value, TextError> {
        use serde_json::Value as Json;
        Ok(match value {
            Json::String(s) => Json::String(self.mark(s, false)?),
            Json::Array(items) => Json::Array(items.iter().map(|v| self.mark_json(v)).collect::<Result<_, _>>()?),
            Json::Object(map) => {
                Json::Object(map.iter().map(|(k, v)| Ok((self.mark(k, false)?, self.mark_json(v)?))).collect::<Result<
                    _,
                    TextError,
                >>(
                )?)
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
