//! `/v1/chat/completions`: the next message of a conversation.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::json;

use crate::api::fields::RequestFields;
use crate::api::generate::generate;
use crate::api::openai::chat_writer::ChatWriter;
use crate::api::openai::shared_fields::{self, OwnFields};
use crate::api::openai::{messages, tools};
use crate::api::receive::receive;
use crate::api::request::{GenerationRequest, PromptInput};
use crate::app_state::AppState;
use crate::error::ApiError;
use crate::http::limits::MOST_TOP;
use crate::served_model::ServedModel;

pub(super) async fn handle(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Response, ApiError> {
    let (request, context) = receive(&app, request, parse_chat).await?;
    let identity = app.next_answer();
    let serial = identity.serial.clone();
    let tokenizer = app.engine().tokenizer().cloned();
    let writer = ChatWriter::new(identity, tokenizer, request.output, request.choices);
    generate(&app, request, context, writer, &serial).await
}

/// Parses the body of a chat completion.
///
/// # Errors
/// The body is not a JSON object, or a field is wrong, which the error names.
pub fn parse_chat(body: &[u8], model: &ServedModel) -> Result<GenerationRequest, ApiError> {
    let mut fields = RequestFields::parse(body)?;
    let conversation = messages::read(&mut fields)?;
    let tools = tools::read(&mut fields)?;
    let logprobs = logprobs(&mut fields)?;
    refuse_unsupported(&mut fields)?;
    let prompt = PromptInput::Chat(conversation);
    let own = OwnFields { prompt, prompt_field: "messages", tools, logprobs, default_max_tokens: None };
    shared_fields::read(fields, model, own)
}

fn logprobs(fields: &mut RequestFields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    match fields.whole("top_logprobs", 0, MOST_TOP)? {
        Some(_) if !wanted => Err(ApiError::field("top_logprobs", "requires \"logprobs\": true")),
        top => Ok(wanted.then(|| top.unwrap_or(0) as usize)),
    }
}

/// Refuses fields of OpenAI's chat that this server does not support.
fn refuse_unsupported(fields: &mut RequestFields) -> Result<(), ApiError> {
    fields.unsupported("functions", &[json!([])])?;
    fields.unsupported("function_call", &[json!("none"), json!("auto")])?;
    fields.unsupported("modalities", &[json!(["text"])])?;
    fields.unsupported("audio", &[])?;
    fields.unsupported("web_search_options", &[])?;
    fields.unsupported("store", &[json!(false)])
}
