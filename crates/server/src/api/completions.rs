//! `/v1/completions`: plain text, or tokens, to be continued.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use selfspec_engine::Prompt;
use selfspec_model::TokenId;
use serde_json::{Value, json};

use crate::api::answer::Kind;
use crate::api::constraint::{Constraint, grammar_of};
use crate::api::format::Format;
use crate::api::heavy;
use crate::api::prediction;
use crate::api::request::Asked;
use crate::api::tools::Tools;
use crate::app::App;
use crate::error::ApiError;
use crate::http::body;
use crate::http::limits::MOST_TOP;
use crate::observe::ticket::Ticket;

/// Tokens where the request says nothing, as OpenAI's API has it.
const USUAL_TOKENS: usize = 16;

pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let ticket = Ticket::of(&request);
    let mut fields = body::read(&app, request).await?;
    let prompt = prompt(&app, fields.take("prompt"))?;
    let prediction = prediction::read(&mut fields, &app)?;
    let mut asked = Asked::read(&mut fields, &app)?;
    asked.prediction = prediction;
    asked.max_tokens.get_or_insert(USUAL_TOKENS);
    asked.logprobs = fields.whole("logprobs", 0, MOST_TOP)?.map(|n| n as usize);
    let format = Format::read(&mut fields)?;
    fields.unsupported("suffix", &[])?;
    fields.unsupported("echo", &[json!(false)])?;
    fields.unsupported("best_of", &[json!(1)])?;
    fields.finish();
    let tokenizer = app.engine().tokenizer().map(|tokenizer| &**tokenizer);
    let constraint = Constraint::of(&format, &Tools::default(), app.tool_style(), tokenizer)?;
    asked.grammar = grammar_of(&app, constraint).await?;
    app.answer(Kind::Completion, asked, &prompt, ticket).await
}

/// The tokens of a prompt: a string, or an array of token ids, or an array of one of these.
fn prompt(app: &App, value: Option<Value>) -> Result<Vec<TokenId>, ApiError> {
    let wrong = |why: &str| ApiError::field("prompt", why);
    let prompt = match value {
        None => return Err(wrong("it is missing")),
        Some(Value::String(text)) => Prompt::Text(text),
        Some(Value::Array(mut items)) => match items.as_slice() {
            [Value::String(_) | Value::Array(_)] => return self::prompt(app, items.pop()),
            [Value::String(_) | Value::Array(_), ..] => return Err(wrong("several prompts: this server takes one")),
            _ => {
                let id = |item: &Value| item.as_u64().and_then(|id| TokenId::try_from(id).ok());
                let ids: Option<Vec<TokenId>> = items.iter().map(id).collect();
                Prompt::Tokens(ids.ok_or_else(|| wrong("expected a string, or an array of token ids"))?)
            }
        },
        Some(_) => return Err(wrong("expected a string, or an array of token ids")),
    };
    let bytes = if let Prompt::Text(text) = &prompt { text.len() } else { 0 };
    heavy::run(bytes, || app.engine().encode(&prompt)).map_err(|e| wrong(&e.to_string()))
}
