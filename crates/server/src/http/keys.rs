//! The keys of which a request must carry one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::error::ApiError;
use crate::page;

/// Paths that need no key: whoever keeps the server running has none.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

/// Hashes of the keys; none: no request needs one.
#[derive(Debug)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(crate) fn new(keys: &[String]) -> Self {
        Keys(keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect())
    }

    /// Whether the request carries one of the keys, if keys are asked for. All keys are compared to the end, by their hashes, so that the time tells nothing.
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

/// Refuses requests without a key, where one is asked for: known paths and unknown ones alike. The page's files hold no data and are open.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path();
    if OPEN.contains(&path) || page::has(path) || app.keys().admit(&request) {
        return next.run(request).await;
    }
    ApiError::unauthorized().into_response()
}
