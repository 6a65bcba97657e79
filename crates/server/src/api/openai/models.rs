//! `/v1/models`: the served model.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::app_state::AppState;
use crate::error::ApiError;

fn model(app: &AppState) -> Value {
    json!({
        "id": app.model().id,
        "object": "model",
        "created": app.started(),
        "owned_by": "selfspec",
        "context_length": app.engine().context(),
    })
}

pub(crate) async fn list(State(app): State<Arc<AppState>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model(&app)] }))
}

pub(crate) async fn one(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    if id == app.model().id {
        return Ok(Json(model(&app)));
    }
    Err(ApiError::unknown_model(&id, &app.model().id))
}
