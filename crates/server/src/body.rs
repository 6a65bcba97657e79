//! The body of a request, read to its end within the server's limit.

use std::error::Error;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::LengthLimitError;

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::heavy;
use crate::ticket::Ticket;

/// Reads a body as a JSON object.
pub(crate) async fn read(app: &App, request: Request<Body>) -> Result<Fields, ApiError> {
    let limit = app.options().body_limit;
    let ticket = app.records_bodies().then(|| Ticket::of(&request));
    let bytes = axum::body::to_bytes(request.into_body(), limit);
    let bytes = match tokio::time::timeout(app.options().read_timeout, bytes).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) => {
            return Err(ApiError::too_large(limit));
        }
        Ok(Err(error)) => return Err(ApiError::bad_request(format!("the body cannot be read: {error}"))),
        Err(_) => return Err(ApiError::too_slow()),
    };
    let fields = heavy::run(bytes.len(), || Fields::read(&bytes))?;
    if let Some(ticket) = ticket {
        ticket.keep(bytes);
    }
    Ok(fields)
}
