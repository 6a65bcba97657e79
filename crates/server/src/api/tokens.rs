//! `/tokenize`, `/detokenize` and `/apply-template`: what the model is given for a text, and back. The names and fields are those of llama-server.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use selfspec_engine::EngineError;
use selfspec_model::TokenId;
use selfspec_text::Tokenizer;
use serde_json::{Value, json};

use crate::api::chat::render;
use crate::api::heavy;
use crate::api::messages::Conversation;
use crate::api::tools::Tools;
use crate::app::App;
use crate::error::ApiError;
use crate::http::body;

fn tokenizer(app: &App) -> Result<&Arc<Tokenizer>, ApiError> {
    app.engine().tokenizer().ok_or_else(|| EngineError::NoTokenizer.into())
}

/// `content` to `tokens`; `add_special`: with BOS if the model wants one.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let mut fields = body::read(&app, request).await?;
    let content = fields.string("content")?.ok_or_else(|| ApiError::field("content", "it is missing"))?;
    let special = fields.bool("add_special")?.unwrap_or(false);
    fields.finish();
    let tokenizer = tokenizer(&app)?;
    let tokens = heavy::run(content.len(), || tokenizer.encode(&content, special));
    let tokens = tokens.map_err(|e| ApiError::field("content", e.to_string()))?;
    Ok(Json(json!({ "tokens": tokens })))
}

/// `tokens` to `content`.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let mut fields = body::read(&app, request).await?;
    let tokens = fields.take("tokens");
    fields.finish();
    let wrong = |why: String| ApiError::field("tokens", why);
    let Some(Value::Array(tokens)) = tokens else { return Err(wrong("expected an array of token ids".to_owned())) };
    let tokenizer = tokenizer(&app)?;
    let mut bytes = Vec::new();
    for token in &tokens {
        let id = token.as_u64().and_then(|id| TokenId::try_from(id).ok());
        let piece = id.and_then(|id| tokenizer.bytes(id));
        bytes.extend_from_slice(piece.ok_or_else(|| wrong(format!("{token} is no token of the model")))?);
    }
    Ok(Json(json!({ "content": String::from_utf8_lossy(&bytes) })))
}

/// `messages`, and `tools` if there are any, to the `prompt` that the chat template makes of them.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Json<Value>, ApiError> {
    let mut fields = body::read(&app, request).await?;
    let conversation = Conversation::read(&mut fields)?;
    let tools = Tools::read(&mut fields)?;
    fields.finish();
    Ok(Json(json!({ "prompt": render(&app, &conversation, &tools)?.text() })))
}
