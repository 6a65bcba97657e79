//! `/v1/chat/completions`, and the rendering of conversations.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use selfspec_engine::EngineError;
use selfspec_model::TokenId;
use selfspec_text::RenderedPrompt;
use serde_json::{Value, json};

use crate::api::answer::Kind;
use crate::api::calls::Calling;
use crate::api::constraint::{Constraint, grammar_of};
use crate::api::fields::Fields;
use crate::api::format::Format;
use crate::api::heavy;
use crate::api::messages::Conversation;
use crate::api::prediction;
use crate::api::request::Asked;
use crate::api::tools::Tools;
use crate::app::App;
use crate::error::ApiError;
use crate::http::body;
use crate::http::limits::MOST_TOP;
use crate::observe::ticket::Ticket;

pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let ticket = Ticket::of(&request);
    let mut fields = body::read(&app, request).await?;
    let conversation = Conversation::read(&mut fields)?;
    let tools = Tools::read(&mut fields)?;
    let format = Format::read(&mut fields)?;
    let prediction = prediction::read(&mut fields, &app)?;
    let mut asked = Asked::read(&mut fields, &app)?;
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    asked.logprobs = match fields.whole("top_logprobs", 0, MOST_TOP)? {
        Some(_) if !wanted => return Err(ApiError::field("top_logprobs", "it needs \"logprobs\": true")),
        top => wanted.then(|| top.unwrap_or(0) as usize),
    };
    unsupported(&mut fields)?;
    fields.finish();
    let prompt = encode(&app, &conversation, &tools)?;
    if let Some(calling) = Calling::of(&tools, app.tool_style()) {
        asked.calling = Some(calling);
        asked.spelled = app.tool_tags().to_vec();
    }
    let tokenizer = app.engine().tokenizer().map(|tokenizer| &**tokenizer);
    let constraint = Constraint::of(&format, &tools, app.tool_style(), tokenizer)?;
    asked.grammar = grammar_of(&app, constraint).await?;
    asked.prediction = prediction;
    app.answer(Kind::Chat, asked, &prompt, ticket).await
}

/// The text that the model is given for a conversation.
pub(crate) fn render(app: &App, conversation: &Conversation, tools: &Tools) -> Result<RenderedPrompt, ApiError> {
    let engine = app.engine();
    let Some(template) = engine.chat_template() else {
        // The engine knows why there is none.
        let why = engine.encode(&selfspec_engine::Prompt::Chat(conversation.messages.clone()));
        return Err(why.err().unwrap_or(EngineError::NoChatTemplate).into());
    };
    if !tools.offered.is_empty() && conversation.extra.contains_key("tools") {
        return Err(ApiError::field("chat_template_kwargs.tools", "the functions stand in tools"));
    }
    let offered: Vec<Value> = tools.offered.iter().map(|tool| tool.json.clone()).collect();
    let rendered = template.render_tools(&conversation.messages, &offered, app.tool_style(), &conversation.extra);
    rendered.map_err(|e| ApiError::field("messages", e.to_string()))
}

fn encode(app: &App, conversation: &Conversation, tools: &Tools) -> Result<Vec<TokenId>, ApiError> {
    let rendered = render(app, conversation, tools)?;
    let tokenizer = app.engine().tokenizer().ok_or(EngineError::NoTokenizer)?;
    let encoded = heavy::run(rendered.text().len(), || tokenizer.encode_prompt(&rendered));
    encoded.map_err(|e| ApiError::field("messages", e.to_string()))
}

/// Refuses what OpenAI's chat knows and this server cannot do.
fn unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    fields.unsupported("functions", &[json!([])])?;
    fields.unsupported("function_call", &[json!("none"), json!("auto")])?;
    fields.unsupported("modalities", &[json!(["text"])])?;
    fields.unsupported("audio", &[])?;
    fields.unsupported("web_search_options", &[])?;
    fields.unsupported("store", &[json!(false)])
}
