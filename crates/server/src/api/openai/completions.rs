//! `/v1/completions`: the continuation of a text or of tokens.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use selfspec_model::TokenId;
use serde_json::{Value, json};

use crate::api::fields::RequestFields;
use crate::api::generate::generate;
use crate::api::openai::completion_writer::CompletionWriter;
use crate::api::openai::shared_fields::{self, OwnFields};
use crate::api::receive::receive;
use crate::api::request::{GenerationRequest, PromptInput, ToolOffer};
use crate::app_state::AppState;
use crate::error::ApiError;
use crate::http::limits::MOST_TOP;
use crate::served_model::ServedModel;

/// OpenAI's default for `max_tokens`.
const DEFAULT_TOKENS: usize = 16;

pub(super) async fn handle(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Response, ApiError> {
    let (request, context) = receive(&app, request, parse_completion).await?;
    let identity = app.next_answer();
    let serial = identity.serial.clone();
    let tokenizer = app.engine().tokenizer().cloned();
    let writer = CompletionWriter::new(identity, tokenizer, request.output, request.choices);
    generate(&app, request, context, writer, &serial).await
}

/// Parses the body of a completion.
///
/// # Errors
/// The body is not a JSON object, or a field is wrong, which the error names.
pub fn parse_completion(body: &[u8], model: &ServedModel) -> Result<GenerationRequest, ApiError> {
    let mut fields = RequestFields::parse(body)?;
    let prompt = prompt(fields.take("prompt"))?;
    let logprobs = fields.whole("logprobs", 0, MOST_TOP)?.map(|n| n as usize);
    fields.unsupported("suffix", &[])?;
    fields.unsupported("echo", &[json!(false)])?;
    fields.unsupported("best_of", &[json!(1)])?;
    let (tools, default_max_tokens) = (ToolOffer::default(), Some(DEFAULT_TOKENS));
    shared_fields::read(
        fields,
        model,
        OwnFields { prompt, prompt_field: "prompt", tools, logprobs, default_max_tokens },
    )
}

/// A prompt: a string, an array of token ids, or an array of one of these.
fn prompt(value: Option<Value>) -> Result<PromptInput, ApiError> {
    let wrong = |why: &str| ApiError::field("prompt", why);
    match value {
        None => Err(wrong("missing")),
        Some(Value::String(text)) => Ok(PromptInput::Text(text)),
        Some(Value::Array(mut items)) => match items.as_slice() {
            [Value::String(_) | Value::Array(_)] => self::prompt(items.pop()),
            [Value::String(_) | Value::Array(_), ..] => Err(wrong("several prompts, of which this server takes one")),
            _ => {
                let id = |item: &Value| item.as_u64().and_then(|id| TokenId::try_from(id).ok());
                let ids: Option<Vec<TokenId>> = items.iter().map(id).collect();
                Ok(PromptInput::Tokens(ids.ok_or_else(|| wrong("expected a string, or an array of token ids"))?))
            }
        },
        Some(_) => Err(wrong("expected a string, or an array of token ids")),
    }
}
