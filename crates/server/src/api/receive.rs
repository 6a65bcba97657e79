//! Receives the body of a request and parses it.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;

use crate::api::blocking;
use crate::app_state::AppState;
use crate::error::ApiError;
use crate::observe::context::RequestContext;
use crate::served_model::ServedModel;

/// Reads a body within the server's limits and parses it. The body is kept for the record if that
/// has bodies.
///
/// # Errors
/// The body is too large or too slow, or `parse` refuses it.
pub(crate) async fn receive<T>(
    app: &AppState,
    request: Request<Body>,
    parse: impl FnOnce(&[u8], &ServedModel) -> Result<T, ApiError>,
) -> Result<(T, Arc<RequestContext>), ApiError> {
    let context = RequestContext::of(&request);
    let received = app.bodies().read(request.into_body()).await?;
    let bytes = received.bytes();
    let parsed = blocking::run(bytes.len(), || parse(bytes, app.model()))?;
    if app.records_bodies() {
        context.keep_body(Bytes::copy_from_slice(bytes));
    }
    Ok((parsed, context))
}
