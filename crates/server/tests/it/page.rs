//! The page's files over a real socket: their headers, and that they are open where the API is not.

use crate::support::Running;

/// Status, headers and text.
fn get(running: &Running, path: &str, known: Option<&str>) -> (u16, ureq::http::HeaderMap, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = agent.get(format!("{}{path}", running.url));
    if let Some(tag) = known {
        request = request.header("if-none-match", tag);
    }
    let mut response = request.call().expect("an answer");
    let text = response.body_mut().read_to_string().expect("UTF-8");
    (response.status().as_u16(), response.headers().clone(), text)
}

#[test]
fn the_page_needs_no_key_and_its_headers_let_in_nothing_foreign() {
    let running = Running::with(|options| options.api_keys = vec!["secret".to_owned()]);
    assert_eq!(running.get("/v1/models").0, 401);
    let html = get(&running, "/", None).2;
    assert!(html.starts_with("<!doctype html>"));
    let files = [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page-answer.js", "text/javascript; charset=utf-8"),
        ("/page-client.js", "text/javascript; charset=utf-8"),
        ("/page-elements.js", "text/javascript; charset=utf-8"),
        ("/page-markdown.js", "text/javascript; charset=utf-8"),
        ("/page-store.js", "text/javascript; charset=utf-8"),
        ("/marked.js", "text/javascript; charset=utf-8"),
        ("/page.svg", "image/svg+xml"),
    ];
    for (path, content_type) in files {
        let (status, headers, text) = get(&running, path, None);
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        assert_eq!((status, text.is_empty(), header("content-type").as_str()), (200, false, content_type), "{path}");
        let policy = header("content-security-policy");
        let directives: Vec<&str> = policy.split("; ").collect();
        for expected in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"] {
            assert!(directives.contains(&expected), "{path}: {policy}");
        }
        assert!(directives.contains(&"frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(header("cache-control"), "no-cache", "{path}");
        assert_eq!(header("access-control-allow-origin"), "", "{path}");

        let tag = header("etag");
        let (status, headers, text) = get(&running, path, Some(&format!("\"other\", W/{tag}")));
        assert_eq!((status, text.as_str()), (304, ""), "{path}: the copy is still right");
        assert_eq!(headers.get("etag").and_then(|v| v.to_str().ok()), Some(tag.as_str()));
        assert_eq!(get(&running, path, Some("\"other\"")).0, 200, "{path}");
    }
}
