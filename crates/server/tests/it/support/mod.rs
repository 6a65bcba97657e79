//! Servers for the duration of a test, and requests to them.

pub(crate) mod planted;
pub(crate) mod scripted;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use selfspec_engine::{Engine, EngineOptions, LoadedModel};
use selfspec_server::{ServeOptions, Server};
use selfspec_testkit::{Dims, Family, TinyModel, Vocab};
use serde_json::{Value, json};

fn loaded() -> Arc<LoadedModel> {
    static LOADED: OnceLock<Arc<LoadedModel>> = OnceLock::new();
    let load = || {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("tiny.gguf");
        TinyModel::new(Family::Llama).gguf().write(&path);
        LoadedModel::open(&path, Some(1)).expect("a sound model")
    };
    LOADED.get_or_init(load).clone()
}

/// An engine on the tiny model.
pub(crate) fn opened(options: &EngineOptions) -> Arc<Engine> {
    Arc::new(Engine::open_with(&loaded(), options).expect("opens"))
}

/// An engine on a tiny model with this vocabulary.
pub(crate) fn opened_with(vocab: &Vocab) -> Arc<Engine> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tiny.gguf");
    let model = TinyModel::new(Family::Llama).vocab(vocab.clone());
    let dims = Dims { context: 4096, ..model.dims() };
    model.with_dims(dims).gguf().write(&path);
    let loaded = LoadedModel::open(&path, Some(1)).expect("a sound model");
    Arc::new(Engine::open_with(&loaded, &Running::engine()).expect("opens"))
}

/// A server, until it is dropped.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) engine: Arc<Engine>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// The default options of the engine.
    pub(crate) fn engine() -> EngineOptions {
        EngineOptions { threads: Some(1), prefix_cache: true, ..EngineOptions::default() }
    }

    /// A server on the tiny model, with these options.
    pub(crate) fn on(engine: &EngineOptions, change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::of(opened(engine), change)
    }

    /// A server on another engine.
    pub(crate) fn of(engine: Arc<Engine>, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let mut options = ServeOptions::new("127.0.0.1:0".parse().expect("an address"), "tiny");
        change(&mut options);
        let server = Server::bind(engine.clone(), options).expect("a free port");
        let url = format!("http://{}", server.addr());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            server.run(move || stopped.load(Ordering::SeqCst)).expect("it runs");
        });
        Running { url, engine, stop, thread: Some(thread) }
    }

    /// A server on the tiny model with the default options, changed.
    pub(crate) fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::on(&Self::engine(), change)
    }

    /// A server on the tiny model with the default options.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(path, &body.to_string(), &[])
    }

    pub(crate) fn send(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let (status, text) = self.raw(path, body, headers);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn raw(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut response = self.request(path, body, headers);
        let text = text_of(&mut response);
        (response.status().as_u16(), text)
    }

    /// The headers of an answer that is read to its end.
    pub(crate) fn headers(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> ureq::http::HeaderMap {
        let mut response = self.request(path, body, headers);
        text_of(&mut response);
        response.headers().clone()
    }

    fn request(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> ureq::http::Response<ureq::Body> {
        let mut request = agent().post(format!("{}{path}", self.url)).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send(body).expect("an answer")
    }

    /// Sends a request, reads the beginning of its answer, and closes the connection.
    pub(crate) fn begin(&self, path: &str, body: &str) {
        let mut response = self.request(path, body, &[]);
        let mut first = [0; 64];
        response.body_mut().as_reader().read_exact(&mut first).expect("it begins");
    }

    /// Stops the server; requests that run may end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// A connection on which these bytes have been sent.
    pub(crate) fn wire(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).expect("it listens");
        stream.write_all(bytes).expect("sent");
        stream
    }

    /// The bytes of a request.
    pub(crate) fn bytes(&self, head: &str, body: &str) -> Vec<u8> {
        format!("{head} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// Waits until this number of choices is queued or running. The number must not change again by
    /// itself.
    pub(crate) fn wait_for(&self, choices: usize) {
        self.wait_for_metric(&format!("requests {choices}"));
    }

    /// Waits until `/metrics` has this line; the prefix of the name is left out.
    pub(crate) fn wait_for_metric(&self, line: &str) {
        let line = format!("\nselfspec_{line}\n");
        while !self.get("/metrics").1.contains(&line) {
            std::thread::yield_now();
        }
    }

    /// Waits until no request runs, and checks that every page is free.
    pub(crate) fn pages_are_free(&self) {
        let (free, total) = self.engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("it goes on");
        assert_eq!(free, total);
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).expect("an answer")
    }

    /// `None`: the server closed the connection without an answer.
    pub(crate) fn try_get(&self, path: &str) -> Option<(u16, String)> {
        let mut response = agent().get(format!("{}{path}", self.url)).call().ok()?;
        let text = text_of(&mut response);
        Some((response.status().as_u16(), text))
    }
}

pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

fn text_of(response: &mut ureq::http::Response<ureq::Body>) -> String {
    let mut text = String::new();
    response.body_mut().as_reader().read_to_string(&mut text).expect("UTF-8");
    text
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends without a panic");
        }
    }
}

/// A greedy completion of `max_tokens` tokens.
pub(crate) fn completion(more: &Value) -> Value {
    let mut body = json!({
        "prompt": "one two one two one two one two one two",
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": true,
    });
    let more = more.as_object().expect("an object");
    body.as_object_mut().expect("an object").extend(more.clone());
    body
}

/// The objects of a stream, which must end with `[DONE]`.
pub(crate) fn chunks(text: &str) -> Vec<Value> {
    let mut events: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    events.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").expect("data")).expect("JSON")).collect()
}

/// A greedy chat of `max_tokens` tokens.
pub(crate) fn chat(more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": "hello there" }],
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": true,
    });
    let more = more.as_object().expect("an object");
    body.as_object_mut().expect("an object").extend(more.clone());
    body
}
