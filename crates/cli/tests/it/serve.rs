//! `serve` as a process: it listens, answers, refuses what it cannot do, and ends in peace.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::support::{model, ran};

/// A server on a free port, and where it listens.
pub(crate) fn served(flags: &[&str]) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("selfspec"))
        .args([&["serve", &model("tiny.gguf"), "--port", "0", "-t", "1"], flags].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("it says where it listens");
    let at = line.split("http://").nth(1).and_then(|rest| rest.split("/v1").next());
    let at = at.unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, at, lines)
}

pub(crate) fn post(at: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    answer
}

#[cfg(unix)]
#[test]
fn it_answers_and_ends_at_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let (mut child, at, _lines) = served(&[]);
        let body = r#"{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": true}"#;
        let answer = post(&at, "/v1/chat/completions", body);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"completion_tokens\":5"), "{answer}");
        assert!(answer.contains("\"model\":\"tiny\""), "{answer}");
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{signal}");
    }
}

#[test]
fn keys_come_from_a_file_and_from_the_flag() {
    let keys = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&keys, "# of the team\nfirst\n\n  second # Ann's\n").expect("written");
    let (mut child, at, _lines) =
        served(&["--api-key-file", keys.path().to_str().expect("UTF-8"), "--api-key", "third"]);
    for (key, status) in [("first", "200"), ("second", "200"), ("third", "200"), ("Ann's", "401"), ("", "401")] {
        let mut stream = TcpStream::connect(&at).expect("it listens");
        write!(stream, "GET /v1/models HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nX-Api-Key: {key}\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{key:?}: {answer}");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn what_cannot_be_served_is_said() {
    let tiny = model("tiny.gguf");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("an address").port().to_string();
    let taken = ran(&["serve", &tiny, "--port", &port]);
    assert!(taken.code == Some(1) && taken.stderr.contains("cannot listen on 127.0.0.1:"), "{taken:?}");
    let long = ran(&["serve", &tiny, "--port", "0", "-c", "9999999"]);
    assert!(long.code == Some(2) && long.stderr.contains("the model was made for"), "{long:?}");
    let record = ran(&["serve", &tiny, "--port", "0", "--record", "/no/such/folder/record.jsonl"]);
    assert!(record.code == Some(1) && record.stderr.contains("cannot record to /no/such/folder/"), "{record:?}");
    let alone = ran(&["serve", &tiny, "--port", "0", "--record-prompts"]);
    assert!(alone.code == Some(2) && alone.stderr.contains("hint: --record names its file"), "{alone:?}");
    assert_eq!(ran(&["serve", &tiny, "--speculate-share", "1.5"]).code, Some(2));
    let empty = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&empty, "# no key yet\n\n  # nor here\n").expect("written");
    let file = empty.path().to_str().expect("UTF-8");
    let keyless = ran(&["serve", &tiny, "--port", "0", "--api-key-file", file]);
    assert!(keyless.code == Some(2) && keyless.stderr.contains("there is no key in it"), "{keyless:?}");
    let absent = ran(&["serve", &tiny, "--port", "0", "--api-key-file", "/nowhere/keys"]);
    assert!(absent.code == Some(1) && absent.stderr.contains("--api-key-file /nowhere/keys"), "{absent:?}");
    let origin = ran(&["serve", &tiny, "--port", "0", "--cors-origin", "example.org"]);
    assert!(origin.code == Some(2) && origin.stderr.contains("is not an origin"), "{origin:?}");
    for flags in [&["--request-timeout", "0"][..], &["--stall-timeout", "-1"], &["--max-connections", "0"]] {
        assert_eq!(ran(&[&["serve", &tiny], flags].concat()).code, Some(2), "{flags:?}");
    }
    for flags in [&["--port", "99999"][..], &["--host", "here"], &["--max-batch", "0"], &["--api-key", ""]] {
        assert_eq!(ran(&[&["serve", &tiny], flags].concat()).code, Some(2), "{flags:?}");
    }
}
