//! From the input of a request to tokens.

use selfspec_engine::{EngineError, Prompt};
use selfspec_model::TokenId;
use selfspec_text::RenderedPrompt;
use serde_json::Value;

use crate::api::blocking;
use crate::api::request::{Conversation, PromptInput, ToolOffer};
use crate::app_state::AppState;
use crate::error::ApiError;

/// Renders a conversation with the model's chat template. `field`: the body's field that holds the
/// messages.
pub(crate) fn render(
    app: &AppState,
    conversation: &Conversation,
    tools: &ToolOffer,
    field: &str,
) -> Result<RenderedPrompt, ApiError> {
    let engine = app.engine();
    let Some(template) = engine.chat_template() else {
        // The engine knows why there is none.
        let why = engine.encode(&Prompt::Chat(conversation.messages.clone()));
        return Err(why.err().unwrap_or(EngineError::NoChatTemplate).into());
    };
    if !tools.offered.is_empty() && conversation.template_variables.contains_key("tools") {
        return Err(ApiError::field("chat_template_kwargs.tools", "not allowed beside the field tools"));
    }
    let offered: Vec<Value> = tools.offered.iter().map(|tool| tool.json.clone()).collect();
    let variables = &conversation.template_variables;
    let rendered = template.render_tools(&conversation.messages, &offered, app.tool_style(), variables);
    rendered.map_err(|e| ApiError::field(field, e.to_string()))
}

/// The tokens of a request's prompt.
pub(crate) fn encode(
    app: &AppState,
    prompt: &PromptInput,
    tools: &ToolOffer,
    field: &str,
) -> Result<Vec<TokenId>, ApiError> {
    let engine = app.engine();
    let encoded = match prompt {
        PromptInput::Chat(conversation) => {
            let rendered = render(app, conversation, tools, field)?;
            let tokenizer = engine.tokenizer().ok_or(EngineError::NoTokenizer)?;
            let encoded = blocking::run(rendered.text().len(), || tokenizer.encode_prompt(&rendered));
            return encoded.map_err(|e| ApiError::field(field, e.to_string()));
        }
        PromptInput::Text(text) => blocking::run(text.len(), || engine.encode(&Prompt::Text(text.clone()))),
        PromptInput::Tokens(tokens) => engine.encode(&Prompt::Tokens(tokens.clone())),
    };
    encoded.map_err(|e| ApiError::field(field, e.to_string()))
}

/// The tokens of a prediction.
pub(crate) fn encode_prediction(app: &AppState, prediction: &str) -> Result<Vec<TokenId>, ApiError> {
    let tokenizer = app.engine().tokenizer().ok_or(EngineError::NoTokenizer)?;
    let encoded = blocking::run(prediction.len(), || tokenizer.encode(prediction, false));
    encoded.map_err(|e| ApiError::field("prediction.content", e.to_string()))
}
