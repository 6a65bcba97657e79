//! The field `prediction`: text that the answer is likely to repeat. It changes the speed and nothing else.

use selfspec_engine::EngineError;
use selfspec_model::TokenId;

use crate::api::fields::Fields;
use crate::api::messages::text;
use crate::app::App;
use crate::error::ApiError;

const FIELD: &str = "prediction";

/// Takes the field: `{"type": "content", "content": a string or text parts}`; its tokens.
pub(crate) fn read(fields: &mut Fields, app: &App) -> Result<Vec<TokenId>, ApiError> {
    let Some(map) = fields.object(FIELD)? else { return Ok(Vec::new()) };
    let mut fields = Fields::within(FIELD, map);
    match fields.string("type")?.as_deref() {
        Some("content") => {}
        _ => return Err(ApiError::field("prediction.type", "expected \"content\"")),
    }
    let at = "prediction.content";
    let content = fields.take("content").ok_or_else(|| ApiError::field(at, "it is missing"))?;
    let content = text(at, &content)?;
    fields.none_left()?;
    let tokenizer = app.engine().tokenizer().ok_or(EngineError::NoTokenizer)?;
    tokenizer.encode(&content, false).map_err(|e| ApiError::field(at, e.to_string()))
}
