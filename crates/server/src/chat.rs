//! `/v1/chat/completions`, and the rendering of conversations.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use selfspec_engine::{EngineError, Message, RenderedPrompt, TokenId};
use serde_json::{Map, Value, json};

use crate::answer::Kind;
use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::heavy;
use crate::limits::{MOST_MESSAGES, MOST_TOP};
use crate::request::Asked;

pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let mut fields = body::read(&app, request).await?;
    let (messages, extra) = conversation(&mut fields)?;
    let mut asked = Asked::read(&mut fields, &app)?;
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    asked.logprobs = match fields.whole("top_logprobs", 0, MOST_TOP)? {
        Some(_) if !wanted => return Err(ApiError::field("top_logprobs", "it needs \"logprobs\": true")),
        top => wanted.then(|| top.unwrap_or(0) as usize),
    };
    unsupported(&mut fields)?;
    fields.finish();
    let prompt = encode(&app, &messages, &extra)?;
    app.answer(Kind::Chat, asked, &prompt).await
}

/// Takes `messages` and the variables of the template.
pub(crate) fn conversation(fields: &mut Fields) -> Result<(Vec<Message>, Map<String, Value>), ApiError> {
    let messages = match fields.take("messages") {
        None => return Err(ApiError::field("messages", "it is missing")),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(ApiError::field("messages", "expected an array")),
    };
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        let why = format!("expected 1 to {MOST_MESSAGES} messages, got {}", messages.len());
        return Err(ApiError::field("messages", why));
    }
    let messages = messages.into_iter().enumerate().map(|(i, message)| read_message(i, message));
    let messages = messages.collect::<Result<_, _>>()?;
    Ok((messages, fields.object("chat_template_kwargs")?.unwrap_or_default()))
}

fn read_message(i: usize, message: Value) -> Result<Message, ApiError> {
    let wrong = |what: &str, why: String| ApiError::field(format!("messages[{i}]{what}"), why);
    let Value::Object(message) = message else { return Err(wrong("", "expected an object".to_owned())) };
    let Some(role) = message.get("role").and_then(Value::as_str) else {
        return Err(wrong(".role", "expected a string".to_owned()));
    };
    if message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
        return Err(wrong(".tool_calls", "this server does not support it".to_owned()));
    }
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .map(|(p, part)| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(text)) => Ok(text),
                (Some("text"), None) => Err(wrong(&format!(".content[{p}].text"), "expected a string".to_owned())),
                (kind, _) => {
                    let kind = kind.unwrap_or("without type");
                    Err(wrong(&format!(".content[{p}]"), format!("a part of type {kind:?}: only text is supported")))
                }
            })
            .collect::<Result<String, _>>()?,
        _ => return Err(wrong(".content", "expected a string or an array of text parts".to_owned())),
    };
    // OpenAI's newer word for the system's turn.
    let role = if role == "developer" { "system" } else { role };
    Ok(Message::new(role, content))
}

/// The text that the model is given for a conversation.
pub(crate) fn render(app: &App, messages: &[Message], extra: &Map<String, Value>) -> Result<RenderedPrompt, ApiError> {
    let engine = app.engine();
    let Some(template) = engine.chat_template() else {
        // The engine knows why there is none.
        let why = engine.encode(&selfspec_engine::Prompt::Chat(messages.to_vec()));
        return Err(why.err().unwrap_or(EngineError::NoChatTemplate).into());
    };
    template.render(messages, true, extra).map_err(|e| ApiError::field("messages", e.to_string()))
}

fn encode(app: &App, messages: &[Message], extra: &Map<String, Value>) -> Result<Vec<TokenId>, ApiError> {
    let rendered = render(app, messages, extra)?;
    let tokenizer = app.engine().tokenizer().ok_or(EngineError::NoTokenizer)?;
    let encoded = heavy::run(rendered.text().len(), || tokenizer.encode_prompt(&rendered));
    encoded.map_err(|e| ApiError::field("messages", e.to_string()))
}

/// Refuses what OpenAI's chat knows and this server cannot do.
fn unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    fields.unsupported("tools", &[json!([])])?;
    fields.unsupported("tool_choice", &[json!("none"), json!("auto")])?;
    fields.unsupported("parallel_tool_calls", &[json!(true), json!(false)])?;
    fields.unsupported("functions", &[json!([])])?;
    fields.unsupported("function_call", &[json!("none"), json!("auto")])?;
    fields.unsupported("response_format", &[json!({ "type": "text" })])?;
    fields.unsupported("modalities", &[json!(["text"])])?;
    fields.unsupported("prediction", &[])?;
    fields.unsupported("audio", &[])?;
    fields.unsupported("web_search_options", &[])?;
    fields.unsupported("store", &[json!(false)])
}
