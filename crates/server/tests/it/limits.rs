//! Limits of size, number and time; keys; origins; and the stop of the server.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Running, agent, chat, planted};
use selfspec_testkit::faulty_backend::ReleaseOnDrop;
use serde_json::{Value, json};

/// All bytes until the other side closes.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A side that closes with unread bytes resets the connection; the bytes before count.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn completion_of(max_tokens: usize, stream: bool) -> Value {
    json!({ "prompt": [1, 2, 3], "max_tokens": max_tokens, "stream": stream, "temperature": 0 })
}

#[test]
fn headers_are_limited_in_size_and_number() {
    let running = Running::new();
    let large = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-Large: {}\r\n\r\n", "a".repeat(33 << 10));
    assert!(rest(running.wire(large.as_bytes())).starts_with("HTTP/1.1 431"));
    let many = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert!(rest(running.wire(many.as_bytes())).starts_with("HTTP/1.1 431"));
    assert!(rest(running.wire(b"NONSENSE\r\n\r\n")).starts_with("HTTP/1.1 400"));
    let sound = format!("GET /livez HTTP/1.1\r\nConnection: close\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(90));
    assert!(rest(running.wire(sound.as_bytes())).starts_with("HTTP/1.1 200"));
}

#[test]
fn headers_and_bodies_that_do_not_arrive_are_given_up() {
    let running = Running::with(|options| options.read_timeout = Duration::from_millis(200));
    assert_eq!(rest(running.wire(b"GET /livez HTTP/1.1\r\nHost:")), "");
    assert_eq!(rest(running.wire(b"")), "", "nor is a connection without a request");
    // On a busy machine this client may itself be too slow to send its headers; then it tries
    // again.
    let answered = |bytes: &[u8], status: &str| loop {
        let answer = rest(running.wire(bytes));
        if !answer.is_empty() {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            return answer;
        }
    };
    let half = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"content\":";
    assert!(answered(half, "408").contains("did not arrive in time"));
    answered(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200");
}

#[test]
fn a_connection_beyond_the_limit_waits_until_another_closes() {
    let running = Running::with(|options| options.most_connections = 1);
    let get = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let first = running.wire(b"");
    let mut second = running.wire(get);
    second.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
    assert!(second.read(&mut [0]).is_err(), "no answer while the first connection is open");
    drop(first);
    second.set_read_timeout(None).expect("a time");
    assert!(rest(second).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_request_beyond_its_time_limit_ends_with_an_error() {
    for streams in [false, true] {
        let (engine, plan) = planted::engine(1);
        // Long enough that a busy machine begins the first request within it.
        let limit = Duration::from_secs(3);
        let running = Running::of(engine, |options| options.request_timeout = Some(limit));
        plan.hold(true);
        let ask = completion_of(400, streams).to_string();
        let ask = || agent().post(format!("{}/v1/completions", running.url)).send(&ask).expect("an answer");
        std::thread::scope(|scope| {
            let _release = ReleaseOnDrop(&plan);
            let begun = scope.spawn(ask);
            plan.wait_for_step(0);
            let waiting = scope.spawn(ask);
            running.wait_for(2);
            std::thread::sleep(limit);
            plan.hold(false);
            let mut waiting = waiting.join().expect("answered");
            assert_eq!(waiting.status().as_u16(), 503);
            assert_eq!(waiting.headers()["retry-after"], "1");
            let body: Value = waiting.body_mut().read_json().expect("JSON");
            assert_eq!(body["error"]["code"], "timeout");
            let mut begun = begun.join().expect("answered");
            assert_eq!(begun.status().as_u16(), if streams { 200 } else { 504 });
            let body = begun.body_mut().read_to_string().expect("UTF-8");
            assert!(body.contains("\"code\":\"timeout\"") && body.contains("with 1 tokens generated"), "{body}");
            assert_eq!(body.ends_with("data: [DONE]\n\n"), streams, "{body}");
            assert!(!body.contains("\"finish_reason\":\""), "{body}");
        });
        running.wait_for(0);
        running.pages_are_free();
    }
}

#[test]
fn a_step_that_panics_fails_its_requests_only() {
    let (engine, plan) = planted::engine(4);
    let running = Running::of(engine, |_| {});
    for streams in [false, true] {
        plan.panic_in.store(5, Ordering::SeqCst);
        let (status, body) = running.raw("/v1/completions", &completion_of(50, streams).to_string(), &[]);
        assert_eq!(status, if streams { 200 } else { 500 }, "{body}");
        assert!(body.contains("\"type\":\"server_error\"") && body.contains("a worker fell over"), "{body}");
        assert_eq!(body.ends_with("data: [DONE]\n\n"), streams, "{body}");
        assert_eq!(running.post("/v1/completions", &completion_of(50, false)).0, 200, "the server goes on");
    }
    running.pages_are_free();
}

#[test]
fn only_the_probes_and_the_page_need_no_key() {
    let running = Running::with(|options| options.api_keys = vec!["secret".to_owned()]);
    for path in ["/livez", "/readyz", "/", "/page.js"] {
        assert_eq!(running.get(path).0, 200, "{path}");
    }
    let paths = [
        "/page.txt",
        "/health",
        "/metrics",
        "/props",
        "/v1/models",
        "/v1/models/tiny",
        "/nowhere",
        "/livez/",
        "/tokenize",
    ];
    for path in paths {
        assert_eq!(running.get(path).0, 401, "{path}");
        assert_eq!(running.send(path, "{}", &[]).0, 401, "{path}");
    }
    let key = [("x-api-key", "secret")];
    assert_eq!((running.send("/nowhere", "{}", &key).0, running.send("/v1/models", "{}", &key).0), (404, 405));
}

#[test]
fn only_named_origins_may_use_the_server() {
    let headers = |running: &Running, origin: &str| {
        let preflight = ureq::http::Request::options(format!("{}/v1/chat/completions", running.url))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type")
            .body(())
            .expect("a request");
        let preflight = agent().run(preflight).expect("an answer");
        let get = agent().get(format!("{}/livez", running.url)).header("origin", origin).call().expect("an answer");
        let text = |response: &ureq::http::Response<ureq::Body>, name: &str| {
            response.headers().get(name).map(|value| value.to_str().expect("text").to_owned())
        };
        let allowed = text(&get, "access-control-allow-origin");
        assert_eq!(text(&preflight, "access-control-allow-origin"), allowed);
        if allowed.is_some() {
            assert_eq!(preflight.status().as_u16(), 200, "a browser sends no key with a preflight");
            let asked = text(&preflight, "access-control-allow-headers");
            assert_eq!(asked.as_deref(), Some("authorization,content-type"));
        }
        allowed
    };
    assert_eq!(headers(&Running::new(), "https://example.org"), None);
    let named = Running::with(|options| {
        options.cors_origins = vec!["https://example.org".to_owned(), "http://localhost:3000".to_owned()];
        options.api_keys = vec!["secret".to_owned()];
    });
    assert_eq!(headers(&named, "http://localhost:3000").as_deref(), Some("http://localhost:3000"));
    assert_eq!(headers(&named, "https://example.com"), None);
    let all = Running::with(|options| options.cors_origins = vec!["*".to_owned()]);
    assert_eq!(headers(&all, "https://example.com").as_deref(), Some("*"));
}

#[test]
fn while_it_drains_requests_are_refused_and_running_ones_finish() {
    let (engine, plan) = planted::engine(1);
    let running = Running::of(engine, |_| {});
    plan.hold(true);
    std::thread::scope(|scope| {
        let _release = ReleaseOnDrop(&plan);
        let under_way = scope.spawn(|| running.post("/v1/completions", &completion_of(20, false)));
        plan.wait_for_step(0);
        running.stop();
        // A connection opened just before the stop may be closed without an answer.
        while running.try_get("/readyz").is_none_or(|(status, _)| status == 200) {
            std::thread::yield_now();
        }
        assert_eq!((running.get("/readyz").0, running.get("/livez").0), (503, 200));
        assert_eq!(running.post("/v1/completions", &completion_of(20, false)).0, 503);
        plan.hold(false);
        let (status, answer) = under_way.join().expect("answered");
        assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(20)));
    });
    drop(running); // it ends without a panic
    assert_eq!(Running::new().post("/v1/chat/completions", &chat(&json!({}))).0, 200);
}
