//! The body of a request, read to its end within the server's limit.

use axum::body::Body;
use axum::extract::Request;

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::ticket::Ticket;

/// Reads a body as a JSON object.
pub(crate) async fn read(app: &App, request: Request<Body>) -> Result<Fields, ApiError> {
    let limit = app.options().body_limit;
    let ticket = app.records_bodies().then(|| Ticket::of(&request));
    let bytes = axum::body::to_bytes(request.into_body(), limit);
    let bytes = match tokio::time::timeout(app.options().read_timeout, bytes).await {
        Ok(bytes) => bytes.map_err(|_| ApiError::too_large(limit))?,
        Err(_) => return Err(ApiError::bad_request("the body did not come in time")),
    };
    let fields = Fields::read(&bytes)?;
    if let Some(ticket) = ticket {
        ticket.keep(bytes);
    }
    Ok(fields)
}
