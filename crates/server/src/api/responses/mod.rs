//! OpenAI's `/v1/responses`, stateless: nothing is kept between requests.

mod input;
mod parse;
mod writer;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;

use crate::api::generate::generate;
use crate::api::receive::receive;
use crate::api::responses::writer::ResponseWriter;
use crate::app_state::AppState;
use crate::error::ApiError;

/// The paths that generate text.
pub(crate) fn generation_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/responses", post(handle))
}

async fn handle(State(app): State<Arc<AppState>>, request: Request<Body>) -> Result<Response, ApiError> {
    let ((request, echo), context) = receive(&app, request, parse::parse).await?;
    let identity = app.next_answer();
    let serial = identity.serial.clone();
    let writer = ResponseWriter::new(identity, app.engine().tokenizer().cloned(), request.output, echo);
    generate(&app, request, context, writer, &serial).await
}
