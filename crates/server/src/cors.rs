//! Which other origins' pages may read the answers in a browser: none, unless the options name them.

use std::time::Duration;

use axum::http::{HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::serve::ServeError;

/// How long a browser may remember the answer to a preflight.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The layer that answers preflights and sets the headers; none where no origin is named. `*` is every origin.
///
/// # Errors
/// [`ServeError::Origin`].
pub(crate) fn layer(origins: &[String]) -> Result<Option<CorsLayer>, ServeError> {
    if origins.is_empty() {
        return Ok(None);
    }
    let values = origins.iter().map(|origin| value(origin)).collect::<Result<Vec<_>, _>>()?;
    let allowed =
        if origins.iter().any(|origin| origin == "*") { AllowOrigin::any() } else { AllowOrigin::list(values) };
    Ok(Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([header::RETRY_AFTER])
            .max_age(MAX_AGE),
    ))
}

/// An origin as browsers send it: a scheme, a host, and a port if it is not the scheme's own.
fn value(origin: &str) -> Result<HeaderValue, ServeError> {
    let wrong = || ServeError::Origin { origin: origin.to_owned() };
    let sound = |origin: &str| match origin.split_once("://") {
        Some((scheme, rest)) => !scheme.is_empty() && !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*']),
        None => origin == "*" || origin == "null",
    };
    if !sound(origin) {
        return Err(wrong());
    }
    HeaderValue::from_str(origin).map_err(|_| wrong())
}
