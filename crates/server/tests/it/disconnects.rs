//! Clients that leave, and clients that do not read.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Running, chunks, planted};
use selfspec_testkit::faulty_backend::ReleaseOnDrop;
use serde_json::{Value, json};

/// A request whose stream is larger than the system's buffers.
fn large() -> Value {
    let n = 16;
    json!({ "prompt": [1, 2, 3], "max_tokens": 1000, "n": n, "logprobs": 20, "stream": true, "temperature": 0 })
}

/// A connection with a small buffer, on which the large request has been sent.
fn unread(running: &Running) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("a size");
    let addr: std::net::SocketAddr = running.url.trim_start_matches("http://").parse().expect("an address");
    socket.connect(&addr.into()).expect("it listens");
    let mut stream = TcpStream::from(socket);
    let request = running.bytes("POST /v1/completions", &large().to_string());
    let request = String::from_utf8(request).expect("UTF-8").replacen("Host: x", "Host: x\r\nConnection: close", 1);
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
    stream
}

/// The body of an answer in chunked coding as far as it arrived, and whether it is complete.
fn body(mut stream: TcpStream) -> (String, bool) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (_, mut rest) = text.split_once("\r\n\r\n").expect("headers");
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return (body, true);
        }
        let Some(piece) = after.get(..length) else { break };
        body.push_str(piece);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    (body, false)
}

#[test]
fn a_client_that_leaves_frees_its_admission_and_its_pages() {
    let (engine, plan) = planted::engine(8);
    let running = Running::of(engine, |_| {});
    for streams in [false, true] {
        plan.hold(true);
        let before = plan.steps.load(Ordering::SeqCst);
        let ask = json!({ "prompt": [1, 2, 3], "max_tokens": 2000, "n": 3, "stream": streams }).to_string();
        let client = running.wire(&running.bytes("POST /v1/completions", &ask));
        plan.wait_for_step(before);
        running.wait_for(3);
        drop(client);
        running.wait_for(0);
        plan.hold(false);
        running.pages_are_free();
    }
}

#[test]
fn many_clients_that_leave_at_any_moment_leave_no_pages_behind() {
    let (engine, _) = planted::engine(8);
    let running = Running::of(engine, |options| options.most_requests = 64);
    std::thread::scope(|scope| {
        for client in 0..8_u64 {
            let running = &running;
            scope.spawn(move || {
                for i in 0..40 {
                    let turn = client * 40 + i;
                    let tokens = 1 + turn * 37 % 1500;
                    let n = 1 + turn % 3;
                    let ask =
                        json!({ "prompt": [turn % 40, 2], "max_tokens": tokens, "n": n, "stream": turn % 2 == 0 });
                    let bytes = running.bytes("POST /v1/completions", &ask.to_string());
                    let sent = if turn % 7 == 0 { bytes.len() / 2 } else { bytes.len() };
                    let client = running.wire(&bytes[..sent]);
                    std::thread::sleep(Duration::from_micros(turn * 7919 % 20_000));
                    drop(client);
                }
            });
        }
    });
    running.wait_for(0);
    running.pages_are_free();
}

#[test]
fn a_client_that_reads_late_holds_no_page_meanwhile_and_gets_the_same_tokens() {
    let (engine, plan) = planted::engine(8);
    let running = Running::of(engine, |_| {});
    let whole = running.post("/v1/completions", &{
        let mut ask = large();
        ask["stream"] = json!(false);
        ask
    });
    assert_eq!(whole.0, 200, "{}", whole.1);
    plan.hold(true);
    let before = plan.steps.load(Ordering::SeqCst);
    let client = unread(&running);
    plan.wait_for_step(before);
    plan.hold(false);
    // This waits until no request runs.
    running.pages_are_free();
    running.wait_for(16);
    let other = json!({ "prompt": [5], "max_tokens": 50, "temperature": 0 });
    assert_eq!(running.post("/v1/completions", &other).0, 200, "others go on");
    let (body, ended) = body(client);
    assert!(ended);
    let chunks = chunks(&body);
    for choice in 0..16 {
        let own = chunks.iter().map(|c| &c["choices"][0]).filter(|c| c["index"] == choice);
        let logprobs: Vec<&Value> = own.filter_map(|c| c["logprobs"]["token_logprobs"].as_array()).flatten().collect();
        let expected = whole.1["choices"][choice]["logprobs"]["token_logprobs"].as_array().expect("an array");
        assert_eq!(logprobs, expected.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_client_that_reads_nothing_for_too_long_loses_its_connection() {
    let (engine, _) = planted::engine(8);
    let running = Running::of(engine, |options| options.stall_timeout = Duration::from_millis(300));
    let client = unread(&running);
    running.wait_for_metric("request_success_total{finished_reason=\"cancelled\"} 16");
    running.wait_for(0);
    running.pages_are_free();
    let (body, ended) = body(client);
    assert!(!ended && !body.contains("[DONE]"));
}

/// While a request waits in the queue, or nothing comes of it, its stream shows that it is alive.
#[test]
fn a_silent_stream_gets_signs_of_life() {
    let (engine, plan) = planted::engine(1);
    let running = Running::of(engine, |options| options.keep_alive = Duration::from_millis(1));
    plan.hold(true);
    let _release = ReleaseOnDrop(&plan);
    let ask = json!({ "prompt": [1, 2, 3], "max_tokens": 3, "stream": true }).to_string();
    let read_until = |stream: &mut TcpStream, sign: &str, times: usize| {
        let mut text = String::new();
        while text.matches(sign).count() < times {
            let mut some = [0; 64];
            let n = stream.read(&mut some).expect("it goes on");
            assert!(n > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&some[..n]));
        }
        text
    };
    let mut first = running.wire(&running.bytes("POST /v1/completions", &ask));
    let text = read_until(&mut first, ": waiting\n\n", 2);
    assert!(text.to_lowercase().contains("x-accel-buffering: no"), "{text}");
    let mut queued = running.wire(&running.bytes("POST /v1/completions", &ask));
    read_until(&mut queued, ": waiting\n\n", 2);
    plan.hold(false);
    for mut stream in [first, queued] {
        read_until(&mut stream, "[DONE]", 1);
    }
}

#[test]
fn what_runs_too_long_while_the_server_stops_ends_with_an_error() {
    let (engine, plan) = planted::engine(2);
    let running = Running::of(engine, |options| options.drain = Duration::from_millis(1));
    plan.hold(true);
    let _release = ReleaseOnDrop(&plan);
    let ask = |stream: bool| json!({ "prompt": [1, 2, 3], "max_tokens": 20, "stream": stream }).to_string();
    std::thread::scope(|scope| {
        let streamed = scope.spawn(|| running.raw("/v1/completions", &ask(true), &[]));
        let whole = scope.spawn(|| running.raw("/v1/completions", &ask(false), &[]));
        running.wait_for(2);
        running.stop();
        let (status, text) = whole.join().expect("answered");
        assert!(status == 503 && text.contains("the server stopped"), "{status} {text}");
        // The one that did not run yet still has a status.
        let (status, text) = streamed.join().expect("answered");
        assert!(text.contains("the server stopped") && (status == 503 || text.ends_with("data: [DONE]\n\n")), "{text}");
    });
}
