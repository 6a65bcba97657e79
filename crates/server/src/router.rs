//! The paths, and the layers around them.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::api;
use crate::app_state::AppState;
use crate::error::ApiError;
use crate::http::cors::{AllowedOrigins, refuse_other_origins};
use crate::http::keys::{ApiKeys, require_key};
use crate::http::panics::catch_panics;
use crate::observe::context::{RequestIds, identify};
use crate::observe::count::{count_failures, count_responses};
use crate::options::ServeOptions;
use crate::page;
use crate::serve_error::ServeError;

/// The router of the whole server.
///
/// # Errors
/// [`ServeError::Origin`].
pub(crate) fn router(app: Arc<AppState>, options: &ServeOptions) -> Result<Router, ServeError> {
    let origins = AllowedOrigins::new(&options.cors_origins, options.addr);
    let cors = origins.layer().map_err(|error| ServeError::Origin { origin: error.0 })?;
    let (keys, ids) = (ApiKeys::new(&options.api_keys), RequestIds::new(app.started()));
    // Innermost first: what a layer refuses still gets an id and is counted.
    let guarded = |routes: Router<Arc<AppState>>| {
        routes
            .method_not_allowed_fallback(async || ApiError::method_not_allowed())
            .layer(from_fn_with_state(keys.clone(), require_key))
            .layer(from_fn_with_state(origins.clone(), refuse_other_origins))
            .layer(from_fn(catch_panics))
            .layer(from_fn(api::anthropic::shape_errors))
            .layer(from_fn_with_state(ids.clone(), identify))
    };
    let metrics = app.metrics().clone();
    let generating = guarded(api::generation_routes()).layer(from_fn_with_state(metrics.clone(), count_failures));
    let others = api::other_routes()
        .merge(page::routes())
        .fallback(async || ApiError::not_found("unknown_url", "no such path on this server"));
    let router = guarded(others).merge(generating).layer(from_fn_with_state(metrics, count_responses)).with_state(app);
    Ok(match cors {
        Some(cors) => router.layer(cors),
        None => router,
    })
}
