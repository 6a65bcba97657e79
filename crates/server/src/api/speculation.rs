//! The field `speculation`: how a request's tokens are drafted. It changes the speed and nothing else.

use selfspec_engine::Engine;
use selfspec_model::LayerPlan;
use selfspec_speculate::{DraftLen, DrafterChoice, MAX_DRAFT, SpeculationParams};
use serde_json::Value;

use crate::api::fields::Fields;
use crate::error::ApiError;

const FIELD: &str = "speculation";

/// Reads the field: "auto", "off", or an object of `drafter`, `exit_layer`, `draft_len` and `max_gain_loss`.
pub(crate) fn read(fields: &mut Fields, engine: &Engine) -> Result<SpeculationParams, ApiError> {
    let usual = || match engine.loaded().and_then(|loaded| loaded.tuning()) {
        Some(tuning) => tuning.speculation(engine.n_layers()).map_err(ApiError::from),
        None => Ok(SpeculationParams::default()),
    };
    match fields.take(FIELD) {
        None => usual(),
        Some(Value::String(word)) if word == "auto" => usual(),
        Some(Value::String(word)) if word == "off" => Ok(SpeculationParams::off()),
        Some(Value::Object(map)) => of(Fields::within(FIELD, map), engine),
        Some(_) => Err(ApiError::field(FIELD, "expected \"auto\", \"off\" or an object")),
    }
}

fn of(mut fields: Fields, engine: &Engine) -> Result<SpeculationParams, ApiError> {
    let n = engine.n_layers();
    let under = |name: &str, why: String| ApiError::field(format!("{FIELD}.{name}"), why);
    let exit = fields.whole("exit_layer", 1, n.saturating_sub(1).max(1) as u64)?;
    let drafter = fields.string("drafter")?;
    let drafter = match (drafter.as_deref(), exit) {
        (Some("layer-skip") | None, Some(exit)) => {
            let plan = LayerPlan::exit(n, exit as usize).map_err(|e| under("exit_layer", e.to_string()))?;
            DrafterChoice::LayerSkip(plan)
        }
        (Some("layer-skip"), None) => return Err(under("exit_layer", "layer-skip needs one".to_owned())),
        (Some(other), Some(_)) => return Err(under("exit_layer", format!("it means nothing to {other}"))),
        (Some("exit-head"), None) => DrafterChoice::ExitHead,
        (Some("prompt-lookup"), None) => DrafterChoice::PromptLookup,
        (Some("auto") | None, None) => DrafterChoice::Auto,
        (Some(other), None) => {
            let known = "auto, exit-head, layer-skip and prompt-lookup are known";
            return Err(under("drafter", format!("{other:?} is none: {known}")));
        }
    };
    let draft_len = fields.whole("draft_len", 1, MAX_DRAFT as u64)?;
    let draft_len = draft_len.map_or(DraftLen::Adaptive, |k| DraftLen::Fixed(k as usize));
    // The most of plain decoding's speed that speculation may lose where it does not pay.
    let max_loss = fields.number("max_gain_loss", 0.0, 1.0)?.map(f64::from);
    fields.none_left()?;
    Ok(SpeculationParams { drafter, draft_len, max_loss, ..SpeculationParams::default() })
}
