//! Counts the responses of HTTP requests.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::observe::metrics::{RequestFailure, ServerMetrics};

/// Counts the responses of all paths.
pub(crate) async fn count_responses(
    State(metrics): State<Arc<ServerMetrics>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    metrics.count_response(response.status());
    response
}

/// Counts the failures of the paths that generate.
pub(crate) async fn count_failures(
    State(metrics): State<Arc<ServerMetrics>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if let Some(failure) = RequestFailure::of(response.status()) {
        metrics.count_failure(failure);
    }
    response
}
