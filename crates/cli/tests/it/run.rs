//! `run` on tiny models: text, figures, JSON, and what must not change anything.

use super::support::{file, finish, keys, model, ran, selfspec};

const GREEDY: &[&str] = &["-p", "one two one two one two", "-n", "48", "--spec-always"];

fn run(args: &[&str]) -> super::support::Ran {
    let tiny = model("tiny.gguf");
    let ran = ran(&[&["run", &tiny], args].concat());
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran
}

#[test]
fn text_goes_to_stdout_and_the_figures_to_stderr() {
    let text = run(GREEDY);
    assert!(!text.stdout.is_empty() && text.stdout.ends_with('\n'));
    let lines: Vec<_> = text.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", text.stderr);
    assert!(lines[0].contains("tokens at ") && lines[0].contains("finished by "), "{}", lines[0]);
    assert!(lines[1].starts_with("speculation: ") && lines[1].contains(" drafted, "), "{}", lines[1]);
    let quiet = run(&[GREEDY, &["--quiet"]].concat());
    assert_eq!((quiet.stdout, quiet.stderr.as_str()), (text.stdout, ""));
}

#[test]
fn json_has_exactly_the_documented_keys() {
    let json = run(&[GREEDY, &["--json", "--exit-layer", "3", "--draft-len", "4"]].concat()).json();
    assert_eq!(keys(&json), ["text", "token_ids", "finish_reason", "usage", "timings", "speculation"]);
    assert_eq!(keys(&json["usage"]), ["prompt_tokens", "completion_tokens"]);
    let timings = ["prompt_ms", "predicted_ms", "predicted_per_second", "draft_n", "draft_n_accepted", "rounds"];
    assert_eq!(keys(&json["timings"]), timings);
    assert_eq!(keys(&json["speculation"]), ["drafter", "exit_layer", "draft_len", "off_reason"]);
    assert_eq!(json["speculation"]["drafter"], "layer-skip");
    assert_eq!(json["speculation"]["exit_layer"], 3);
    assert!(json["timings"]["draft_n"].as_u64() > Some(0), "{json}");
    let ids = json["token_ids"].as_array().expect("an array").len() as u64;
    assert_eq!(json["usage"]["completion_tokens"].as_u64(), Some(ids));
}

#[test]
fn no_way_of_drafting_changes_the_output() {
    for sampling in [&["--temp", "0"][..], &["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]] {
        let base = ["-p", "one two one two one two", "-n", "64", "--json"];
        let plain = run(&[&base, sampling, &["--spec", "off"]].concat()).json();
        assert_eq!(plain["timings"]["draft_n"], 0);
        assert_eq!(plain["speculation"]["drafter"], "off");
        let mut drafted = 0;
        for drafter in [
            &["--exit-layer", "2"][..],
            &["--exit-layer", "5", "--draft-len", "8", "--spec-always"],
            &["--skip-layers", "2..4", "--draft-len", "3", "--spec-always", "--no-bonus"],
            &["--spec", "layer-skip", "--min-confidence", "0.2"],
            &["--spec", "prompt-lookup", "--draft-len", "8", "--spec-always"],
            &["--spec", "auto", "-t", "3"],
        ] {
            let json = run(&[&base, sampling, drafter].concat()).json();
            assert_eq!(json["token_ids"], plain["token_ids"], "{drafter:?}");
            assert_eq!((&json["text"], &json["finish_reason"]), (&plain["text"], &plain["finish_reason"]));
            drafted += json["timings"]["draft_n"].as_u64().expect("a number");
        }
        assert!(drafted > 0);
    }
}

#[test]
fn a_cache_of_q8_computes_something_else_and_is_as_lossless() {
    let base = ["-p", "one two one two one two", "-n", "200", "--temp", "0.8", "--seed", "7", "--json"];
    let tokens = |flags: &[&str]| run(&[&base, flags].concat()).json()["token_ids"].clone();
    let plain = tokens(&["--kv-type", "q8", "--spec", "off"]);
    assert_eq!(tokens(&["--kv-type", "q8", "--spec", "prompt-lookup", "--draft-len", "8", "--spec-always"]), plain);
    assert_eq!(tokens(&["--kv-type", "q8", "--exit-layer", "2", "--spec-always", "-t", "3"]), plain);
    assert_ne!(tokens(&["--spec", "off"]), plain);
    let home = tempfile::tempdir().expect("a temporary folder");
    let by_variable = finish(
        selfspec(home.path()).args([&["run", &model("tiny.gguf")], &base[..]].concat()).env("SELFSPEC_KV_TYPE", "q8"),
    );
    assert_eq!(by_variable.json()["token_ids"], plain);
}

#[test]
fn a_prompt_comes_from_a_flag_a_file_a_pipe_or_a_variable() {
    let expected = run(&["-p", "some text", "-n", "8"]).stdout;
    let (_dir, path) = file("prompt.txt", "some text\n");
    assert_eq!(run(&["--prompt-file", &path.display().to_string(), "-n", "8"]).stdout, expected);
    let home = tempfile::tempdir().expect("a temporary folder");
    let tiny = model("tiny.gguf");
    let piped = |args: &[&str]| finish(selfspec(home.path()).args(args).write_stdin("some text\n")).stdout;
    assert_eq!(piped(&["run", &tiny, "-n", "8"]), expected);
    assert_eq!(piped(&["run", &tiny, "-n", "8", "--prompt-file", "-"]), expected);
    let mut command = selfspec(home.path());
    command.arg("run").envs([
        ("SELFSPEC_MODEL", tiny.as_str()),
        ("SELFSPEC_PROMPT", "some text"),
        ("SELFSPEC_MAX_TOKENS", "8"),
    ]);
    assert_eq!(finish(&mut command).stdout, expected);
}

#[test]
fn a_file_or_standard_input_follows_a_prompt_only_if_it_is_named() {
    let expected = run(&["-p", "some text\n\nmore", "-n", "8"]).stdout;
    let (_dir, path) = file("more.txt", "more\n");
    assert_eq!(run(&["-p", "some text", "--prompt-file", &path.display().to_string(), "-n", "8"]).stdout, expected);
    let home = tempfile::tempdir().expect("a temporary folder");
    let tiny = model("tiny.gguf");
    let flags = ["run", &tiny, "-p", "some text", "-n", "8"];
    let piped = finish(selfspec(home.path()).args(flags).args(["--prompt-file", "-"]).write_stdin("more\n"));
    assert_eq!(piped.stdout, expected);
    let alone = run(&["-p", "some text", "-n", "8"]).stdout;
    assert_ne!(alone, expected);
    assert_eq!(finish(selfspec(home.path()).args(flags).write_stdin("more\n")).stdout, alone);
    let empty = finish(selfspec(home.path()).args(flags).args(["--prompt-file", "-"]));
    assert_eq!(empty.stdout, alone);
}

/// As in a CI job whose standard input nobody closes.
#[test]
fn a_pipe_that_stays_open_beside_a_prompt_is_not_waited_for() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("selfspec"));
    command.args(["run", &model("tiny.gguf"), "-p", "x", "-n", "4"]).stdin(reader);
    let output = command.output().expect("the binary runs");
    drop(writer);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn accepted_drafts_are_bracketed_without_colour_and_green_with_it() {
    let plain = run(GREEDY).stdout;
    let shown = run(&[GREEDY, &["--show-drafts"]].concat()).stdout;
    assert!(shown.contains('\u{27e8}'), "{shown}");
    assert_eq!(shown.replace(['\u{27e8}', '\u{27e9}'], ""), plain);
    let green = run(&[GREEDY, &["--show-drafts", "--color", "always"]].concat()).stdout;
    assert!(green.contains("\x1b[32m"), "{green}");
    assert_eq!(green.replace("\x1b[32m", "").replace("\x1b[0m", ""), plain);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let full = run(&["-p", "x", "-n", "32", "--json"]).json();
    let text = full["text"].as_str().expect("text");
    let stop: String = text.chars().skip(6).take(3).collect();
    let cut = run(&["-p", "x", "-n", "32", "--json", "--stop", &stop, "--stop", "never there"]).json();
    let at = text.find(&stop).expect("it is there");
    assert_eq!(cut["text"].as_str(), Some(&text[..at]));
    assert_eq!(cut["finish_reason"], "stop");
}

#[test]
fn the_trace_has_a_line_for_each_round() {
    let traced = run(&[GREEDY, &["--trace", "--json", "--exit-layer", "3"]].concat());
    let rounds = traced.json()["timings"]["rounds"].as_u64().expect("a number") as usize;
    assert_eq!(traced.stderr.lines().filter(|l| l.starts_with("round at ")).count(), rounds, "{}", traced.stderr);
}

#[test]
fn a_model_without_a_chat_template_takes_plain_text() {
    let bare = model("bare.gguf");
    let text = ran(&["run", &bare, "-p", "x", "-n", "8"]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert!(
        text.stderr.contains("the model has no chat template, the prompt is used as plain text"),
        "{}",
        text.stderr
    );
    let raw = ran(&["run", &bare, "-p", "x", "-n", "8", "--raw"]);
    assert_eq!(raw.stdout, text.stdout);
    assert!(!raw.stderr.contains("chat template"));
    let system = ran(&["run", &bare, "-p", "x", "--system", "y"]);
    assert_eq!(system.code, Some(2));
}

#[test]
fn a_folder_of_safetensors_runs_too() {
    let text = ran(&["run", &model("folder"), "-p", "x", "-n", "8"]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
}

#[test]
fn a_prompt_beyond_the_context_is_an_error_with_its_size() {
    let long = ran(&["run", &model("tiny.gguf"), "-p", &"xy ".repeat(400), "-n", "8"]);
    assert_eq!((long.code, long.stdout.as_str()), (Some(1), ""));
    assert!(long.stderr.starts_with("error: the prompt has "), "{}", long.stderr);
    assert!(long.stderr.ends_with("hint: the model takes no longer prompts\n"), "{}", long.stderr);
    for (context, hint) in [("64", "hint: -c gives a longer context, up to 512\n"), ("512", "no longer prompts\n")] {
        let short = ran(&["run", &model("tiny.gguf"), "-p", &"xy ".repeat(400), "-n", "8", "-c", context]);
        assert!(short.code == Some(1) && short.stderr.ends_with(hint), "{short:?}");
        assert_eq!(short.stderr.lines().count(), 2, "{short:?}");
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let home = tempfile::tempdir().expect("a temporary folder");
    for args in [&["-p", "x", "-n", "400"][..], &["-p", "x", "-n", "4", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("selfspec"));
        command.arg("run").arg(model("tiny.gguf")).args(args).env("SELFSPEC_HOME", home.path());
        let output = command.stdin(std::process::Stdio::null()).stdout(writer).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{stderr}");
    }
}

#[test]
fn the_text_can_be_held_to_a_structure_with_and_without_drafts() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let schema = r#"{"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}}, "required": ["ok", "n"], "additionalProperties": false}"#;
    let (schema, lark) = (write("schema.json", schema), write("grammar.lark", "start: \"yes\" | \"no\"\n"));
    for held in
        [["--json-schema", &schema], ["--regex", "(ab|c){3,9}-"], ["--lark", &lark], ["--json-schema", "object"]]
    {
        for sampling in [&["--temp", "0"][..], &["--temp", "1", "--seed", "3"]] {
            let base = [&["-p", "one two", "-n", "200", "--json"][..], sampling, &held].concat();
            let plain = run(&[&base[..], &["--spec", "off"]].concat()).json();
            let drafted = run(&base).json();
            assert_eq!(drafted["text"], plain["text"], "{held:?}");
            let text = plain["text"].as_str().expect("a text");
            if plain["finish_reason"] == "stop" {
                match held[0] {
                    "--json-schema" => assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}"),
                    "--lark" => assert!(["yes", "no"].contains(&text), "{text}"),
                    _ => assert!(text.ends_with('-') && text.len() >= 4, "{text}"),
                }
            } else {
                assert_eq!(held, ["--json-schema", "object"], "only this one may go on for ever: {text}");
            }
        }
    }
    let expected = run(GREEDY);
    let prediction = write("prediction.txt", &String::from_utf8_lossy(expected.stdout.as_bytes()));
    assert_eq!(run(&[GREEDY, &["--prediction", &prediction]].concat()).stdout, expected.stdout);

    let tiny = model("tiny.gguf");
    let refused = |args: &[&str], code: i32, words: &str| {
        let ran = ran(&[&["run", &tiny, "-p", "a"], args].concat());
        assert!(ran.code == Some(code) && ran.stderr.contains(words), "{args:?}: {:?} {}", ran.code, ran.stderr);
    };
    refused(&["--json-schema", "/no/such"], 1, "--json-schema /no/such");
    refused(&["--json-schema", &lark], 1, "not JSON");
    refused(&["--regex", "("], 1, "--regex (: grammar: ");
    refused(&["--lark", &schema], 1, "grammar: ");
    refused(&["--regex", "a", "--lark", &lark], 2, "cannot be used with");
    refused(&["--prediction", "/no/such"], 1, "--prediction /no/such");
}
