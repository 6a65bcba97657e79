//! API keys: a request must carry one of them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::error::ApiError;
use crate::page;

/// Paths that need no key: orchestrators probe without one.
const OPEN_PATHS: [&str; 2] = ["/livez", "/readyz"];

/// SHA-256 hashes of the keys; without any, no request needs a key.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    pub(crate) fn new(keys: &[String]) -> Arc<Self> {
        Arc::new(ApiKeys(keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect()))
    }

    /// Whether the request carries one of the keys, if keys are required. It compares the hashes of
    /// all keys to their ends, so that the time taken reveals nothing.
    fn admit(&self, request: &Request<Body>) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let bearer = header(header::AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let Some(key) = bearer.or_else(|| header("x-api-key")) else { return false };
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let differs = |known: &[u8; 32]| known.iter().zip(&hash).fold(0, |all, (a, b)| all | (a ^ b)) != 0;
        self.0.iter().fold(false, |found, known| found | !differs(known))
    }
}

/// Refuses requests without a key where keys are required, on known and unknown paths alike. The
/// files of the page hold no data and need no key.
pub(crate) async fn require_key(State(keys): State<Arc<ApiKeys>>, request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path();
    if OPEN_PATHS.contains(&path) || page::has(path) || keys.admit(&request) {
        return next.run(request).await;
    }
    ApiError::unauthorized().into_response()
}
