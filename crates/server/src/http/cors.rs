//! Which other origins' pages may use the server from a browser: none, unless the options name
//! them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::error::ApiError;

/// How long a browser may remember the answer to a preflight.
const MAX_AGE: Duration = Duration::from_secs(600);

/// An origin that is not of the form `scheme://host[:port]`.
#[derive(Debug)]
pub(crate) struct MalformedOrigin(pub(crate) String);

/// The origins whose pages may use the server.
#[derive(Debug)]
pub(crate) struct AllowedOrigins {
    named: Vec<String>, // `*` is every origin
    local: bool,        // whether the server listens on this machine only
}

impl AllowedOrigins {
    /// `addr`: where the server listens.
    pub(crate) fn new(origins: &[String], addr: SocketAddr) -> Arc<Self> {
        Arc::new(AllowedOrigins { named: origins.to_vec(), local: addr.ip().is_loopback() })
    }

    /// The layer that answers preflights and sets the headers; `None` where no origin is named.
    ///
    /// # Errors
    /// The first origin that is malformed.
    pub(crate) fn layer(&self) -> Result<Option<CorsLayer>, MalformedOrigin> {
        if self.named.is_empty() {
            return Ok(None);
        }
        let values = self.named.iter().map(|origin| header_value(origin)).collect::<Result<Vec<_>, _>>()?;
        let any = self.named.iter().any(|origin| origin == "*");
        let allowed = if any { AllowOrigin::any() } else { AllowOrigin::list(values) };
        Ok(Some(
            CorsLayer::new()
                .allow_origin(allowed)
                .allow_methods([Method::GET, Method::POST])
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers([header::RETRY_AFTER])
                .max_age(MAX_AGE),
        ))
    }

    /// The origin of the page that sends the request, if that page may not use the server.
    fn refused(&self, headers: &HeaderMap) -> Option<String> {
        let origin = String::from_utf8_lossy(headers.get(header::ORIGIN)?.as_bytes()).into_owned();
        let named = self.named.iter().any(|known| known == "*" || *known == origin);
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let own = origin.split_once("://").is_some_and(|(_, of)| of == host);
        let allowed = named || (own && (!self.local || is_local(host)));
        (!allowed).then_some(origin)
    }
}

/// Refuses requests from pages of other origins. A browser sends a simple request, such as a
/// form's, without a preflight: it would be computed although the page cannot read the answer. A
/// page whose host name was made to resolve to this machine has the server's own origin: a server
/// that listens on this machine only therefore requires one of the machine's own names.
pub(crate) async fn refuse_other_origins(
    State(origins): State<Arc<AllowedOrigins>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    match origins.refused(request.headers()) {
        None => next.run(request).await,
        Some(origin) => ApiError::forbidden(&origin).into_response(),
    }
}

/// Whether a host with its port is an IP address or a name of this machine.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

/// An origin as browsers send it: a scheme, a host, and the port unless it is the scheme's default.
fn header_value(origin: &str) -> Result<HeaderValue, MalformedOrigin> {
    let malformed = || MalformedOrigin(origin.to_owned());
    let well_formed = |origin: &str| match origin.split_once("://") {
        Some((scheme, rest)) => !scheme.is_empty() && !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*']),
        None => origin == "*" || origin == "null",
    };
    if !well_formed(origin) {
        return Err(malformed());
    }
    HeaderValue::from_str(origin).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_origin_is_refused() {
        for origin in ["example.org", "https://", "https://a/b", "://a", ""] {
            let origins = AllowedOrigins::new(&[origin.to_owned()], "127.0.0.1:1".parse().expect("an address"));
            assert_eq!(origins.layer().err().map(|error| error.0).as_deref(), Some(origin));
        }
    }

    #[test]
    fn only_named_origins_and_the_servers_own_are_allowed() {
        let refused = |addr: &str, origins: &[&str], origin: Option<&str>, host: &str| {
            let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let origins = AllowedOrigins::new(&origins, addr.parse().expect("an address"));
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("a value"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("a value"));
            }
            origins.refused(&headers).is_some()
        };
        let (here, everywhere) = ("127.0.0.1:8080", "0.0.0.0:8080");
        assert!(!refused(here, &[], None, "localhost:8080"), "no page sends it");
        for own in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "box.localhost:8080"] {
            assert!(!refused(here, &[], Some(&format!("http://{own}")), own), "{own}");
        }
        assert!(refused(here, &[], Some("http://evil.example"), "127.0.0.1:8080"));
        assert!(
            refused(here, &[], Some("http://evil.example:8080"), "evil.example:8080"),
            "a name that resolves to this machine"
        );
        assert!(refused(here, &[], Some("null"), "127.0.0.1:8080"));
        assert!(!refused(here, &["https://chat.example"], Some("https://chat.example"), "127.0.0.1:8080"));
        assert!(!refused(here, &["*"], Some("https://any.example"), "127.0.0.1:8080"));
        assert!(!refused(everywhere, &[], Some("http://box:8080"), "box:8080"));
        assert!(refused(everywhere, &[], Some("http://evil.example"), "box:8080"));
    }
}
