//! llama-server's `/tokenize`, `/detokenize` and `/apply-template`: from text to the model's
//! tokens, and back.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::post;
use axum::{Json, Router};
use selfspec_engine::EngineError;
use selfspec_model::TokenId;
use selfspec_text::Tokenizer;
use serde_json::{Value, json};

use crate::api::blocking;
use crate::api::fields::RequestFields;
use crate::api::generate::prompt;
use crate::api::openai::{messages, tools};
use crate::api::receive::receive;
use crate::app_state::AppState;
use crate::error::ApiError;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/apply-template", post(apply_template))
}

fn tokenizer(app: &AppState) -> Result<&Arc<Tokenizer>, ApiError> {
    app.engine().tokenizer().ok_or_else(|| EngineError::NoTokenizer.into())
}

/// `content` to `tokens`; `add_special`: with BOS if the model wants one.
async fn tokenize(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let parse = |mut fields: RequestFields| {
        let content = fields.string("content")?.ok_or_else(|| ApiError::field("content", "missing"))?;
        let special = fields.bool("add_special")?.unwrap_or(false);
        fields.finish();
        Ok((content, special))
    };
    let ((content, special), _) = receive(&app, request, |body, _| parse(RequestFields::parse(body)?)).await?;
    let tokenizer = tokenizer(&app)?;
    let tokens = blocking::run(content.len(), || tokenizer.encode(&content, special));
    let tokens = tokens.map_err(|e| ApiError::field("content", e.to_string()))?;
    Ok(Json(json!({ "tokens": tokens })))
}

/// `tokens` to `content`.
async fn detokenize(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let wrong = |why: String| ApiError::field("tokens", why);
    let parse = |mut fields: RequestFields| {
        let tokens = fields.take("tokens");
        fields.finish();
        let Some(Value::Array(tokens)) = tokens else { return Err(wrong("expected an array of token ids".to_owned())) };
        Ok(tokens)
    };
    let (tokens, _) = receive(&app, request, |body, _| parse(RequestFields::parse(body)?)).await?;
    let tokenizer = tokenizer(&app)?;
    let mut bytes = Vec::new();
    for token in &tokens {
        let id = token.as_u64().and_then(|id| TokenId::try_from(id).ok());
        let piece = id.and_then(|id| tokenizer.bytes(id));
        bytes.extend_from_slice(piece.ok_or_else(|| wrong(format!("{token} is not a token of the model")))?);
    }
    Ok(Json(json!({ "content": String::from_utf8_lossy(&bytes) })))
}

/// `messages`, and `tools` if there are any, to the `prompt` that the chat template renders.
async fn apply_template(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Json<Value>, ApiError> {
    let parse = |mut fields: RequestFields| {
        let conversation = messages::read(&mut fields)?;
        let tools = tools::read(&mut fields)?;
        fields.finish();
        Ok((conversation, tools))
    };
    let ((conversation, tools), _) = receive(&app, request, |body, _| parse(RequestFields::parse(body)?)).await?;
    Ok(Json(json!({ "prompt": prompt::render(&app, &conversation, &tools, "messages")?.text() })))
}
