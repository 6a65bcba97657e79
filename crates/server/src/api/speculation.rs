//! The field `speculation` of every dialect: how a request's tokens are drafted. It changes the speed only.

use selfspec_model::LayerPlan;
use selfspec_speculate::{DraftLen, DrafterChoice, MAX_DRAFT, SpeculationParams};
use serde_json::Value;

use crate::api::fields::RequestFields;
use crate::error::ApiError;
use crate::served_model::ServedModel;

const FIELD: &str = "speculation";

/// Reads the field: "auto", "off", or an object of `drafter`, `exit_layer`, `draft_len` and `max_gain_loss`. `None`: it is absent.
pub(crate) fn read(fields: &mut RequestFields, model: &ServedModel) -> Result<Option<SpeculationParams>, ApiError> {
    match fields.take(FIELD) {
        None => Ok(None),
        Some(Value::String(word)) if word == "auto" => Ok(Some(model.speculation.clone())),
        Some(Value::String(word)) if word == "off" => Ok(Some(SpeculationParams::off())),
        Some(Value::Object(map)) => read_object(RequestFields::within(FIELD, map), model.n_layers).map(Some),
        Some(_) => Err(ApiError::field(FIELD, "expected \"auto\", \"off\" or an object")),
    }
}

fn read_object(mut fields: RequestFields, n_layers: usize) -> Result<SpeculationParams, ApiError> {
    let wrong = |name: &str, why: String| ApiError::field(format!("{FIELD}.{name}"), why);
    let exit = fields.whole("exit_layer", 1, n_layers.saturating_sub(1).max(1) as u64)?;
    let drafter = fields.string("drafter")?;
    let drafter = match (drafter.as_deref(), exit) {
        (Some("layer-skip") | None, Some(exit)) => {
            let plan = LayerPlan::exit(n_layers, exit as usize).map_err(|e| wrong("exit_layer", e.to_string()))?;
            DrafterChoice::LayerSkip(plan)
        }
        (Some("layer-skip"), None) => return Err(wrong("exit_layer", "required by the drafter layer-skip".to_owned())),
        (Some(other), Some(_)) => return Err(wrong("exit_layer", format!("not supported by the drafter {other}"))),
        (Some("exit-head"), None) => DrafterChoice::ExitHead,
        (Some("prompt-lookup"), None) => DrafterChoice::PromptLookup,
        (Some("auto") | None, None) => DrafterChoice::Auto,
        (Some(other), None) => {
            let known = "expected auto, exit-head, layer-skip or prompt-lookup";
            return Err(wrong("drafter", format!("{known}, got {other:?}")));
        }
    };
    let draft_len = fields.whole("draft_len", 1, MAX_DRAFT as u64)?;
    let draft_len = draft_len.map_or(DraftLen::Adaptive, |k| DraftLen::Fixed(k as usize));
    // Most of plain decoding's speed that speculation may lose where it does not pay.
    let max_loss = fields.number("max_gain_loss", 0.0, 1.0)?.map(f64::from);
    fields.none_left()?;
    Ok(SpeculationParams { drafter, draft_len, max_loss, ..SpeculationParams::default() })
}
