//! The field `speculation` of every dialect: how a request's tokens are drafted. It changes the
//! speed only.

use selfspec::{DraftLen, RequestedDrafter, SpeculationError, SpeculationRequest};
use selfspec_speculate::{MAX_DRAFT, SpeculationParams};
use serde_json::Value;

use crate::api::fields::RequestFields;
use crate::error::ApiError;
use crate::served_model::ServedModel;

const FIELD: &str = "speculation";

/// Reads the field: "auto", "off", or an object of `drafter`, `exit_layer`, `draft_len` and
/// `max_gain_loss`. Returns the speculation, and whether the request itself chose it.
pub(crate) fn read(fields: &mut RequestFields, model: &ServedModel) -> Result<(SpeculationParams, bool), ApiError> {
    let (request, chosen) = match fields.take(FIELD) {
        None => (SpeculationRequest::default(), false),
        Some(Value::String(word)) if word == "auto" => (SpeculationRequest::default(), true),
        Some(Value::String(word)) if word == "off" => (SpeculationRequest::off(), true),
        Some(Value::Object(map)) => (read_object(RequestFields::within(FIELD, map), model.n_layers)?, true),
        Some(_) => return Err(ApiError::field(FIELD, "expected \"auto\", \"off\" or an object")),
    };
    Ok((model.speculation(&request).map_err(refused)?, chosen))
}

fn read_object(mut fields: RequestFields, n_layers: usize) -> Result<SpeculationRequest, ApiError> {
    let exit_layer = fields.whole("exit_layer", 1, n_layers.saturating_sub(1).max(1) as u64)?;
    let drafter = match fields.string("drafter")? {
        None => None,
        Some(name) => Some(RequestedDrafter::from_name(&name).ok_or_else(|| unknown_drafter(&name))?),
    };
    let draft_len = fields.whole("draft_len", 1, MAX_DRAFT as u64)?;
    // The most of plain decoding's speed that drafting may lose where it does not pay.
    let max_loss = fields.number("max_gain_loss", 0.0, 1.0)?.map(f64::from);
    fields.none_left()?;
    Ok(SpeculationRequest {
        drafter,
        exit_layer: exit_layer.map(|layer| layer as usize),
        draft_len: draft_len.map_or(DraftLen::Adaptive, |k| DraftLen::Fixed(k as usize)),
        max_loss,
        ..SpeculationRequest::default()
    })
}

fn unknown_drafter(name: &str) -> ApiError {
    let known = RequestedDrafter::ALL.map(RequestedDrafter::name).join(", ");
    ApiError::field(format!("{FIELD}.drafter"), format!("expected one of {known}, got {name:?}"))
}

fn refused(error: SpeculationError) -> ApiError {
    match (&error, error.field()) {
        (SpeculationError::NoLayers { drafter, .. }, Some(field)) => {
            ApiError::field(format!("{FIELD}.{field}"), format!("not supported by the drafter {drafter}"))
        }
        (_, Some(field)) => ApiError::field(format!("{FIELD}.{field}"), error.to_string()),
        (_, None) => ApiError::internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use selfspec_model::LayerPlan;
    use selfspec_speculate::DrafterChoice;
    use serde_json::json;

    use super::*;

    fn parsed(speculation: &Value) -> Result<(SpeculationParams, bool), ApiError> {
        let model = ServedModel { id: "tiny".to_owned(), vocab: 300, n_layers: 4, tuning: None };
        let body = json!({ FIELD: speculation }).to_string();
        read(&mut RequestFields::parse(body.as_bytes()).expect("an object"), &model)
    }

    #[test]
    fn every_form_is_read() {
        let drafter = |speculation: Value| {
            let (params, chosen) = parsed(&speculation).expect("valid");
            (params.drafter, chosen)
        };
        let exit = |layer| DrafterChoice::LayerSkip(LayerPlan::exit(4, layer).expect("a layer of the model"));
        assert_eq!(drafter(Value::Null), (DrafterChoice::Auto, false));
        assert_eq!(drafter(json!("auto")), (DrafterChoice::Auto, true));
        assert_eq!(drafter(json!("off")), (DrafterChoice::Off, true));
        assert_eq!(drafter(json!({ "exit_layer": 1 })), (exit(1), true));
        assert_eq!(drafter(json!({ "drafter": "layer-skip", "exit_layer": 3 })), (exit(3), true));
        let (params, _) = parsed(&json!({ "draft_len": 2, "max_gain_loss": 0.5 })).expect("valid");
        assert_eq!((params.draft_len, params.max_loss), (DraftLen::Fixed(2), Some(0.5)));
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (speculation, param) in [
            (json!(1), "speculation"),
            (json!("fast"), "speculation"),
            (json!({ "drafter": "other" }), "speculation.drafter"),
            (json!({ "exit_layer": 4 }), "speculation.exit_layer"),
            (json!({ "exit_layer": 2, "drafter": "prompt-lookup" }), "speculation.exit_layer"),
            (json!({ "draft_len": 0 }), "speculation.draft_len"),
            (json!({ "max_gain_loss": 2 }), "speculation.max_gain_loss"),
            (json!({ "depth": 1 }), "speculation.depth"),
        ] {
            let error = parsed(&speculation).expect_err(param).json();
            assert_eq!(error["error"]["param"], param, "{error}");
        }
    }
}
