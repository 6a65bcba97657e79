//! The page at `/`: a chat in the browser. Its files are part of the program.
//!
//! The files hold no data and need no key: the page calls the API, with the user's key where one is
//! required. The headers allow only this server's own files, nothing inline, and requests to this
//! server only.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::short_hash::short_hash;

/// A file of the page.
struct PageFile {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

/// A script of the page.
const fn script(path: &'static str, text: &'static str) -> PageFile {
    PageFile { path, content_type: "text/javascript; charset=utf-8", text }
}

const FILES: [PageFile; 10] = [
    PageFile { path: "/", content_type: "text/html; charset=utf-8", text: include_str!("index.html") },
    PageFile { path: "/page.css", content_type: "text/css; charset=utf-8", text: include_str!("page.css") },
    PageFile { path: "/page.svg", content_type: "image/svg+xml", text: include_str!("page.svg") },
    script("/page.js", include_str!("page.js")),
    script("/page-answer.js", include_str!("page-answer.js")),
    script("/page-client.js", include_str!("page-client.js")),
    script("/page-elements.js", include_str!("page-elements.js")),
    script("/page-markdown.js", include_str!("page-markdown.js")),
    script("/page-store.js", include_str!("page-store.js")),
    // The parser of Markdown, as published (vendor/README.md).
    script("/marked.js", include_str!("vendor/marked.js")),
];

/// Allows this server's own files and answers only. `require-trusted-types-for` makes the browser
/// refuse to turn text into elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The page's paths, which need no key.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let tag = format!("\"{}\"", short_hash(file.text, 8));
        router.route(file.path, get(async move |headers: HeaderMap| answer(file, &tag, &headers)))
    })
}

/// Whether the path is one of the page's.
pub(crate) fn has(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// Answers with a file. Browsers ask each time whether their copy is still valid.
fn answer(file: &PageFile, tag: &str, request: &HeaderMap) -> Response {
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let known = known.is_some_and(|tags| tags.split(',').any(|t| t.trim().trim_start_matches("W/") == tag));
    let mut response = if known { StatusCode::NOT_MODIFIED.into_response() } else { file.text.into_response() };
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, file.content_type);
    set(header::ETAG, tag);
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_refers_to_its_own_files_only_and_has_nothing_inline() {
        let html = FILES[0].text;
        let own: Vec<String> = FILES.iter().map(|file| file.path.trim_start_matches('/').to_owned()).collect();
        let mut found = 0;
        for attribute in ["src=\"", "href=\"", "action=\""] {
            for (at, _) in html.match_indices(attribute) {
                let value = html[at + attribute.len()..].split('"').next().expect("a value");
                assert!(value.starts_with('#') || own.iter().any(|path| path == value), "{attribute}{value}");
                found += usize::from(!value.starts_with('#'));
            }
        }
        assert_eq!(found, 3, "icon, style sheet and script");
        for inline in [" style=", " onclick=", " onsubmit=", "<style", "javascript:"] {
            assert!(!html.contains(inline), "{inline}");
        }
        assert_eq!(html.matches("<script").count(), html.matches("<script type=\"module\" src=").count());
        for file in &FILES {
            // The parser names its home in a comment, and knows what addresses look like.
            let names_a_host = file.text.replace("http://www.w3.org/2000/svg", "").contains("://");
            assert!(!names_a_host || file.path == "/marked.js", "{} names a host", file.path);
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import"] {
                assert!(!file.text.contains(sink), "{}: {sink}", file.path);
            }
        }
    }
}
