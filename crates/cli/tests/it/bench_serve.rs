//! `bench serve` against this program's server on a tiny model, and against servers that behave
//! badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::serve::served;
use super::support::{Ran, file, keys, ran};

/// A served tiny model, which ends with the test.
struct Server {
    child: Child,
    url: String,
    _lines: BufReader<std::process::ChildStderr>, // a server that cannot write ends
}

impl Server {
    fn new(flags: &[&str]) -> Self {
        let (child, at, lines) = served(flags);
        Server { child, url: format!("http://{at}"), _lines: lines }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bench(url: &str, flags: &[&str]) -> Ran {
    ran(&[&["bench", "serve", "--url", url], flags].concat())
}

/// A run with `--json`, and what stands in the file.
fn bench_json(url: &str, flags: &[&str]) -> (Ran, Value) {
    let (_dir, path) = file("out.json", "");
    let path = path.display().to_string();
    let ran = bench(url, &[flags, &["--json", &path]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(&path).expect("written");
    (ran, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn the_figures_are_those_of_the_requests() {
    let server = Server::new(&[]);
    let flags = ["--requests", "5", "--limit", "2", "-n", "6", "--ignore-eos", "--concurrency", "1,3"];
    let (ran, json) = bench_json(&server.url, &flags);
    for row in ["successful requests", "output tok/s", "TTFT median (ms)", "TPOT P90 (ms)", "E2E mean (ms)"] {
        assert!(ran.stdout.contains(&format!("| {row}")), "{row}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("| 1 at a time") && ran.stdout.contains("| 3 at a time"), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("tiny at http://127.0.0.1:"), "{}", ran.stdout);
    assert_eq!((json["model"].as_str(), json["endpoint"].as_str()), (Some("tiny"), Some("chat")));
    let settings = json["settings"].as_array().expect("an array");
    assert_eq!(settings.iter().map(|s| s["concurrency"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    // On a busy machine each answer may come in one chunk. Then there are no gaps to report.
    let gaps = settings.iter().any(|setting| setting["runs"][0]["p99_itl_ms"].is_number());
    assert_eq!(ran.stdout.contains("| ITL P99 (ms)"), gaps, "{}", ran.stdout);
    for setting in settings {
        let run = &setting["runs"][0];
        assert_eq!(
            (&run["completed"], &run["failed"], &run["total_output_tokens"]),
            (&5.into(), &0.into(), &30.into())
        );
        let requests = run["requests"].as_array().expect("an array");
        assert_eq!(requests.iter().map(|r| r["prompt"].as_u64()).collect::<Vec<_>>(), [0, 1, 0, 1, 0].map(Some));
        let input: u64 = requests.iter().filter_map(|r| r["prompt_tokens"].as_u64()).sum();
        assert_eq!(run["total_input_tokens"].as_u64(), Some(input));
        for request in requests {
            assert_eq!(request["completion_tokens"], 6, "{request}");
            let at = |key: &str| request[key].as_f64().unwrap_or_else(|| panic!("{key}: {request}"));
            assert!(0.0 < at("ttft_s") && at("ttft_s") <= at("finish_s") && at("finish_s") <= at("end_s"), "{request}");
        }
        let rate = |key: &str| run[key].as_f64().unwrap_or_else(|| panic!("{key}"));
        let expected = (30.0 + input as f64) / rate("duration");
        assert!((rate("total_token_throughput") - expected).abs() < 1e-6 * expected);
        assert_eq!(setting["median"]["output_throughput"], run["output_throughput"]);
        assert!(run["drafted"].is_u64() && run["accepted"].is_u64() && run["cached_tokens"].is_u64(), "{run}");
        let most = run["max_concurrent_requests"].as_u64();
        assert!(most <= setting["concurrency"].as_u64() && most >= Some(1), "{run}");
    }
}

#[test]
fn speculation_is_compared_in_turns() {
    let server = Server::new(&[]);
    let flags =
        ["--limit", "2", "-n", "8", "--ignore-eos", "--compare-speculation", "-r", "3", "--endpoint", "completions"];
    let (ran, json) = bench_json(&server.url, &flags);
    assert!(ran.stdout.contains("| 1 at a time, auto ") && ran.stdout.contains("| auto / off |"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("completions: 2 prompts") && ran.stdout.contains("medians of 3 runs"),
        "{}",
        ran.stdout
    );
    let settings = json["settings"].as_array().expect("an array");
    let words: Vec<_> = settings.iter().map(|s| s["speculation"].as_str()).collect();
    assert_eq!(words, [Some("auto"), Some("off")]);
    assert!(settings.iter().all(|s| s["runs"].as_array().map(Vec::len) == Some(3)));
    let off = settings[1]["runs"].as_array().expect("an array");
    assert!(off.iter().all(|run| run["drafted"] == 0), "{off:?}");
    let ratio = &settings[1]["auto_over_off"];
    assert!(settings[0].get("auto_over_off").is_none() && ratio["output_throughput"].as_f64() > Some(0.0), "{json}");
    assert!(keys(ratio).contains(&"median_ttft_ms") && !keys(ratio).contains(&"completed"), "{ratio}");
}

#[test]
fn requests_arrive_at_a_rate() {
    let server = Server::new(&[]);
    let flags = ["--limit", "1", "--requests", "12", "-n", "2", "--ignore-eos", "--request-rate", "200", "--seed", "3"];
    let (ran, json) = bench_json(&server.url, &flags);
    assert!(
        ran.stdout.contains("200 requests a second (seed 3)") && ran.stdout.contains("as they arrive"),
        "{}",
        ran.stdout
    );
    let run = &json["settings"][0]["runs"][0];
    assert_eq!((&run["completed"], &json["settings"][0]["concurrency"]), (&12.into(), &Value::Null));
    let requests = run["requests"].as_array().expect("an array");
    let times = |key: &str| requests.iter().filter_map(|r| r[key].as_f64()).collect::<Vec<f64>>();
    let (due, sent) = (times("due_s"), times("sent_s"));
    assert!(due.len() == 12 && due[0] == 0.0 && due.windows(2).all(|pair| pair[0] < pair[1]), "{due:?}");
    assert!(
        due.iter().zip(&sent).all(|(due, sent)| *due <= sent + 1e-6),
        "none is sent before it arrives: {due:?} {sent:?}"
    );
    // The same seed, the same arrivals.
    let again = bench_json(&server.url, &flags).1;
    let again = again["settings"][0]["runs"][0]["requests"].as_array().expect("an array");
    assert_eq!(again.iter().filter_map(|r| r["due_s"].as_f64()).collect::<Vec<f64>>(), due);
}

#[test]
fn a_prompt_file_and_a_key_are_used() {
    let server = Server::new(&["--api-key", "secret"]);
    let (_dir, prompts) = file(
        "p.jsonl",
        "{\"prompt\": \"one\"}\n{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}]}\n",
    );
    let prompts = prompts.display().to_string();
    let flags =
        ["--prompts", &prompts, "-n", "3", "--api-key", "secret", "--temperature", "0.5", "--sampling-seed", "7"];
    let (_, json) = bench_json(&server.url, &flags);
    assert_eq!((&json["settings"][0]["requests"], &json["sampling_seed"]), (&2.into(), &7.into()));
    for flags in [&[][..], &["--api-key", "wrong"], &["--model", "tiny"]] {
        let refused = bench(&server.url, flags);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("the server answers 401: "), "{refused:?}");
        assert!(refused.stderr.contains("hint: --api-key gives the key"), "{refused:?}");
    }
}

#[test]
fn a_model_that_is_not_served_is_said() {
    let server = Server::new(&[]);
    let ran = bench(&server.url, &["--model", "other"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.starts_with("error: the server answers 404: no model \"other\""), "{ran:?}");
}

#[test]
fn flags_that_mean_nothing_are_wrong_usage() {
    let both = ran(&["bench", "serve", "--compare-speculation", "--speculation", "off"]);
    assert!(both.code == Some(2) && both.stderr.contains("cannot be used with --compare-speculation"), "{both:?}");
    let flags = [
        ["--url", "127.0.0.1:8080"],
        ["--url", "http://"],
        ["--request-rate", "0"],
        ["--request-rate", "nan"],
        ["--concurrency", "0"],
    ];
    for flags in flags {
        assert_eq!(ran(&[&["bench", "serve"], &flags[..]].concat()).code, Some(2), "{flags:?}");
    }
}

/// A server that answers every request with `answer` as it stands, and closes the connection.
fn answering(answer: String) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            if !answer_one(stream, &answer) {
                return;
            }
        }
    });
    (url, thread)
}

/// Whether there was a request other than the one to stop.
fn answer_one(mut stream: TcpStream, answer: &str) -> bool {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).expect("a request") > 2 {
        if line.starts_with("STOP") {
            return false;
        }
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).expect("a body");
    stream.write_all(answer.as_bytes()).expect("sent");
    true
}

/// What a load of two requests says of a server that answers so.
fn against(answer: &str, flags: &[&str]) -> Ran {
    let (url, thread) = answering(answer.to_owned());
    let ran = bench(&url, &[&["--model", "m", "--warmup", "0", "--limit", "2", "--timeout", "60"], flags].concat());
    let mut stop = TcpStream::connect(url.trim_start_matches("http://")).expect("it listens");
    stop.write_all(b"STOP\r\n\r\n").expect("sent");
    thread.join().expect("no panic");
    ran
}

fn http(kind: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}")
}

#[test]
fn servers_that_behave_badly_are_told_apart() {
    let text = "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n";
    let finish = "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n";
    let cases = [
        (http("application/json", "{}"), "the answer is no event stream but application/json"),
        (http("text/event-stream", text), "the stream broke off after 1 chunk: "),
        (http("text/event-stream", &format!("{text}{finish}data: [DONE]\n\n")), "the stream tells no token counts"),
        (http("text/event-stream", "data: {\"error\": {\"message\": \"full\"}}\n\n"), "the server gave up: full"),
        (http("text/event-stream", "data: nonsense\n\n"), "the stream has a chunk that is not JSON"),
        (
            "HTTP/1.1 500 Oh\r\nContent-Length: 4\r\nConnection: close\r\n\r\nouch".to_owned(),
            "the server answers 500: ouch",
        ),
        ("nonsense\r\n\r\n".to_owned(), "the server gives no answer of HTTP"),
        (String::new(), "the server gives no answer of HTTP"),
    ];
    for (answer, why) in cases {
        let ran = against(&answer, &[]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("error: 2 of 2 requests failed: ") && ran.stderr.contains(why), "{why}: {ran:?}");
        // The figures are there, and none is invented.
        assert!(ran.stdout.contains("| failed requests") && !ran.stdout.contains("| TTFT"), "{ran:?}");
    }
}

#[test]
fn another_servers_stream_is_understood() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}});
    let body = format!(
        "\u{feff}: hello\r\n\r\ndata: {{\"choices\":\r\ndata: [{{\"delta\": {{\"content\": \"a b\"}}, \"finish_reason\": \"stop\"}}]}}\r\n\r\ndata: {usage}\r\n\r\ndata: [DONE]\r\n\r\n"
    );
    let ran = against(&http("text/event-stream; charset=utf-8", &body), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("| generated tokens") && !ran.stdout.contains("| drafted"), "{ran:?}");
}

#[test]
fn chunks_are_counted_on_request() {
    let body = "data: {\"choices\": [{\"text\": \"a\"}]}\n\ndata: {\"choices\": [{\"text\": \"b\", \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
    let ran = against(&http("text/event-stream", body), &["--count-chunks", "--endpoint", "completions"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let row = |name: &str| ran.stdout.lines().find(|line| line.starts_with(&format!("| {name} "))).map(str::to_owned);
    assert!(row("generated tokens").is_some_and(|row| row.contains("| 4 ")), "{ran:?}");
    assert_eq!((row("input tokens"), row("total tok/s")), (None, None), "{ran:?}");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let ran = bench(&url, &["--model", "m", "--limit", "1", "--warmup", "0", "--timeout", "1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("1 of 1 requests failed: no whole answer within 1 s"), "{ran:?}");
    assert!(ran.stderr.contains("hint: --timeout gives a request more time"), "{ran:?}");
}

#[test]
fn nobody_listening_is_said() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let ran = bench(&url, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with(&format!("error: cannot connect to {url}: ")), "{ran:?}");
    assert!(ran.stderr.contains("hint: is the server up?"), "{ran:?}");
}
