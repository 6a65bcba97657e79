//! `replay` of what a server recorded: the same server says the same again.

use std::path::Path;
use std::process::{Child, Command};

use serde_json::{Value, json};

use super::serve::{post, served};
use super::support::{Ran, file, ran};

/// Ends a server as its manager would.
fn end(mut child: Child) {
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// The record of some requests, with or without their prompts.
fn recorded(path: &Path, flags: &[&str]) -> Vec<Value> {
    let path = path.display().to_string();
    let (child, at, _lines) = served(&[&["--record", &path, "--speculate-share", "0.5"], flags].concat());
    let chat = |more: Value| {
        let mut body =
            json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 6, "ignore_eos": true });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = post(&at, "/v1/chat/completions", &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    chat(json!({ "temperature": 0 }));
    chat(json!({ "temperature": 1.5, "seed": 4, "n": 2 }));
    chat(json!({ "temperature": 0, "stream": true }));
    chat(json!({ "temperature": 1.5 }));
    let body = json!({ "prompt": "one two", "max_tokens": 5, "temperature": 0, "speculation": "off" });
    assert!(post(&at, "/v1/completions", &body.to_string()).starts_with("HTTP/1.1 200"));
    end(child);
    let text = std::fs::read_to_string(&path).expect("the record is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
}

/// A replay of these lines at a new server.
fn replayed(lines: &[Value], flags: &[&str], serve: &[&str]) -> Ran {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (_dir, path) = file("record.jsonl", &text);
    let (child, at, _lines) = served(serve);
    let url = format!("http://{at}/v1");
    let ran = ran(&[&["replay", &path.display().to_string(), "--url", &url], flags].concat());
    end(child);
    ran
}

#[cfg(unix)]
#[test]
fn the_same_model_says_the_same_again_and_another_answer_is_found() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.jsonl");
    let mut lines = recorded(&path, &["--record-prompts"]);
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(lines.len(), 5, "all are on the disk when the server has ended");
    let again = replayed(&lines, &["--json", "--speed", "max"], &["--speculate-share", "0.9"]);
    let json = again.json();
    let count = |key: &str| json[key].as_u64();
    assert_eq!(
        (again.code, count("n"), count("identical"), count("incomparable")),
        (Some(0), Some(5), Some(4), Some(1))
    );
    assert_eq!((count("failed"), count("different")), (Some(0), Some(0)), "{json}");
    let why = json["requests"].as_array().expect("requests").iter().find(|r| r["verdict"] == "incomparable");
    assert_eq!(why.expect("one")["why"], "sampled without a seed");

    lines[1]["choices"][1]["text"] = json!("something else");
    let other = replayed(&lines, &["--speed", "100"], &["--api-key", "k"]);
    assert!(other.code == Some(1) && other.stdout.contains("5 failed") && other.stdout.contains("401: "), "{other:?}");
    let other = replayed(&lines, &["--speed", "100", "--api-key", "k", "--concurrency", "1"], &["--api-key", "k"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stdout.contains("3 identical, 1 different, 1 not comparable, 0 failed"), "{other:?}");
    let id = lines[1]["id"].as_str().expect("an id");
    assert!(
        other.stdout.contains(&format!("{id}: answer 1 differs after 0 characters: recorded \"something else\"")),
        "{other:?}"
    );
}

#[cfg(unix)]
#[test]
fn what_cannot_be_replayed_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("record.jsonl");
    let lines = recorded(&path, &[]);
    let path = path.display().to_string();
    let bare = ran(&["replay", &path]);
    assert!(
        bare.code == Some(2) && bare.stderr.contains("its 5 requests were recorded without their prompts"),
        "{bare:?}"
    );
    let mut line = lines[0].clone();
    line["request"] = json!({ "messages": [] });
    let (_dir, one) = file("one.jsonl", &line.to_string());
    let one = one.display().to_string();
    let gone = ran(&["replay", &one, "--url", "http://127.0.0.1:9"]);
    assert!(
        gone.code == Some(1) && gone.stdout.contains("0 identical, 0 different, 0 not comparable, 1 failed"),
        "{gone:?}"
    );
    for url in ["127.0.0.1:8080", "ftp://x", "http://", ""] {
        assert_eq!(ran(&["replay", &one, "--url", url]).code, Some(2), "{url}");
    }
    for speed in ["0", "-1", "fast", "inf"] {
        assert_eq!(ran(&["replay", &one, "--speed", speed]).code, Some(2), "{speed}");
    }
    line["path"] = json!("/metrics");
    let (_dir, elsewhere) = file("elsewhere.jsonl", &line.to_string());
    let elsewhere = ran(&["replay", &elsewhere.display().to_string()]);
    assert!(elsewhere.code == Some(2) && elsewhere.stderr.contains("is no path to answers"), "{elsewhere:?}");
}

#[cfg(unix)]
#[test]
fn recorded_times_pass_as_fast_as_is_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut lines = recorded(&dir.path().join("record.jsonl"), &["--record-prompts"]);
    for (i, line) in lines.iter_mut().enumerate() {
        line["time"] = json!(1000.0 + i as f64);
    }
    let json = replayed(&lines, &["--json", "--speed", "10"], &[]).json();
    assert!(json["seconds"].as_f64().is_some_and(|s| s >= 0.4), "four seconds in a tenth of the time: {json}");
}
