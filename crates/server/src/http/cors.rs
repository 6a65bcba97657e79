//! Which other origins' pages may read the answers in a browser: none, unless the options name them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::app::App;
use crate::error::ApiError;
use crate::serve::{ServeError, ServeOptions};

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

/// Refuses what pages of other origins ask for. A browser asks first only where a request is out of the ordinary: a form's would be computed, though its answer could not be
/// read. And a page whose name was made to lead to this machine is of the same origin by its name: where the server listens on this machine only, it must have one of the
/// machine's own.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    match foreign(app.options(), request.headers()) {
        None => next.run(request).await,
        Some(origin) => ApiError::forbidden(&origin).into_response(),
    }
}

/// The origin of a page that is not let in.
fn foreign(options: &ServeOptions, headers: &HeaderMap) -> Option<String> {
    let origin = String::from_utf8_lossy(headers.get(header::ORIGIN)?.as_bytes()).into_owned();
    let named = options.cors_origins.iter().any(|known| known == "*" || *known == origin);
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, of)| of == host);
    let let_in = named || (own && (!options.addr.ip().is_loopback() || is_local(host)));
    (!let_in).then_some(origin)
}

/// Whether a host, with its port, is named by an address or as this machine.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_let_in_by_address_by_name_or_because_they_are_the_servers_own() {
        let refused = |addr: &str, origins: &[&str], origin: Option<&str>, host: &str| {
            let mut options = ServeOptions::new(addr.parse().expect("an address"), "tiny");
            options.cors_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("a value"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("a value"));
            }
            foreign(&options, &headers).is_some()
        };
        let (here, everywhere) = ("127.0.0.1:8080", "0.0.0.0:8080");
        assert!(!refused(here, &[], None, "localhost:8080"), "no page asks");
        for own in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "box.localhost:8080"] {
            assert!(!refused(here, &[], Some(&format!("http://{own}")), own), "{own}");
        }
        assert!(refused(here, &[], Some("http://evil.example"), "127.0.0.1:8080"));
        assert!(refused(here, &[], Some("http://evil.example:8080"), "evil.example:8080"), "a name that leads here");
        assert!(refused(here, &[], Some("null"), "127.0.0.1:8080"));
        assert!(!refused(here, &["https://chat.example"], Some("https://chat.example"), "127.0.0.1:8080"));
        assert!(!refused(here, &["*"], Some("https://any.example"), "127.0.0.1:8080"));
        assert!(!refused(everywhere, &[], Some("http://box:8080"), "box:8080"));
        assert!(refused(everywhere, &[], Some("http://evil.example"), "box:8080"));
    }
}
