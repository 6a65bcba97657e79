//! `train head` on a tiny model: from prompts to a head that drafts, in stages that go on where
//! they were.

use std::path::Path;

use super::support::{Ran, file, finish, model, ran, selfspec};

/// Flags that make a training short: the tiny model's answers are noise, and a head learns what it
/// can of them.
fn train(dir: &Path, more: &[&str]) -> Ran {
    let (out, work) = (dir.join("head.safetensors"), dir.join("work"));
    let tiny = model("tiny.gguf");
    let flags = [
        "train",
        "head",
        &tiny,
        "-o",
        out.to_str().expect("UTF-8"),
        "--work",
        work.to_str().expect("UTF-8"),
        "-n",
        "12",
        "--draft-vocab",
        "64",
        "--epochs",
        "2",
        "--batch",
        "200",
        "--ffn",
        "32",
        "-t",
        "2",
    ];
    ran(&[&flags, more].concat())
}

#[test]
fn a_head_is_trained_on_the_models_own_answers_and_drafts_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_keep, prompts) = file(
        "prompts.jsonl",
        &(0..12)
            .map(|i| format!("{{\"prompt\": \"hello {i} there\", \"category\": \"greeting\"}}\n"))
            .collect::<String>(),
    );
    let prompts = prompts.to_str().expect("UTF-8").to_owned();
    let trained = train(dir.path(), &["--prompts", &prompts, "--own-prompts", "4"]);
    assert_eq!(trained.code, Some(0), "{trained:?}");
    assert!(trained.stdout.contains("greeting") && trained.stdout.contains("all "), "{trained:?}");
    assert!(trained.stderr.contains("the draft vocabulary cover"), "{trained:?}");
    for stage in ["answers.jsonl", "own-prompts.jsonl", "states", "checkpoint"] {
        assert!(dir.path().join("work").join(stage).exists(), "{stage}");
    }
    let head = dir.path().join("head.safetensors");
    let first = std::fs::read(&head).expect("a head");

    // Again: nothing is left to do, and the head is the same but for the command in its card.
    let again = train(dir.path(), &["--prompts", &prompts, "--own-prompts", "4"]);
    assert!(again.stderr.contains("going on from step"), "{again:?}");
    assert_eq!(std::fs::read(&head).expect("a head"), first);

    let head = head.to_str().expect("UTF-8");
    let tiny = model("tiny.gguf");
    let run =
        |more: &[&str]| ran(&[&["run", &tiny, "-p", "hello 3 there", "-n", "40", "--json"], more].concat()).json();
    let plain = run(&["--spec", "off"]);
    let drafted = run(&["--exit-head", head, "--spec", "exit-head", "--spec-always", "--draft-len", "3"]);
    assert_eq!(plain["token_ids"], drafted["token_ids"], "drafts change nothing");
    assert_eq!(drafted["speculation"]["drafter"], "exit-head");
    assert!(drafted["timings"]["draft_n"].as_u64() > Some(20), "{drafted}");
    let verified = ran(&["verify", &tiny, "--exit-head", head, "--limit", "2", "-n", "24", "-t", "1,2"]);
    assert!(verified.stdout.contains("exit head"), "{verified:?}");
    assert!(!verified.stderr.contains("differs"), "{verified:?}");

    // Another model refuses it, and says why.
    let other = ran(&["run", &model("bare.gguf"), "-p", "x", "-n", "2", "--exit-head", head]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stderr.contains("it was trained for") && other.stderr.contains("fingerprint"), "{other:?}");
}

/// Ctrl-C loses nothing: the state is put away, and the same command goes on from there.
#[cfg(unix)]
#[test]
fn a_training_that_is_interrupted_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let home = tempfile::tempdir().expect("a folder");
    let (_keep, prompts) = file("prompts.jsonl", &"{\"prompt\": \"hello there\"}\n".repeat(8));
    let (out, work) = (dir.path().join("head"), dir.path().join("work"));
    let command = || {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("selfspec"));
        command.env("SELFSPEC_HOME", home.path());
        command.args(["train", "head", &model("tiny.gguf"), "-n", "12", "--draft-vocab", "64", "--epochs", "9999"]);
        command.arg("-o").arg(&out).arg("--work").arg(&work).arg("--prompts").arg(&prompts);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::piped());
        command
    };
    let interrupted = |until: &dyn Fn() -> bool| {
        let mut child = command().spawn().expect("the binary runs");
        while !until() && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let checkpoint = work.join("checkpoint");
    let first = interrupted(&|| checkpoint.exists());
    assert!(first.contains("stopped after step ") && first.contains("the same command goes on from there"), "{first}");
    let saved = std::fs::metadata(&checkpoint).expect("saved").modified().expect("a time");
    let second = interrupted(&|| std::fs::metadata(&checkpoint).is_ok_and(|m| m.modified().is_ok_and(|t| t > saved)));
    let of = |text: &str, before: &str| {
        let words = text.split(before).nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        words.and_then(|n| n.parse::<usize>().ok()).unwrap_or_else(|| panic!("{before}: {text}"))
    };
    assert_eq!(of(&second, "going on from step "), of(&first, "stopped after step "));
    assert!(!out.exists() && !work.join("lock").exists());
}

#[test]
fn what_cannot_be_trained_is_said_before_anything_is_generated() {
    let dir = tempfile::tempdir().expect("a folder");
    let says = |more: &[&str], code: i32, words: &str| {
        let ran = train(dir.path(), more);
        assert!(ran.code == Some(code) && ran.stderr.contains(words), "{more:?}: {ran:?}");
    };
    let (_keep, empty) = file("empty.jsonl", "\n\n");
    says(&["--prompts", empty.to_str().expect("UTF-8")], 2, "no prompts");
    says(&["--prompts", "nowhere.jsonl"], 1, "cannot read nowhere.jsonl");
    says(&["--own-prompts", "0"], 2, "no prompts");
    says(&["--head-layer", "6"], 2, "--head-layer 6: the model has 6 layers");
    says(&["--features", "2,7"], 2, "--features 7: the model has 6 layers");
    says(&["--features", "two"], 2, "expected numbers of layers with commas between, or none");
    says(&["--epochs", "0"], 2, "--epochs");
    says(&["--rollout", "17"], 2, "expected a whole number from 1 to 16");
    says(&["--rate", "1.5"], 2, "expected a number above 0, at most 1");
    let folder = dir.path().to_str().expect("UTF-8");
    for (out, words) in [(folder, "that is a folder"), ("nowhere/head", "there is no folder nowhere")] {
        let work = dir.path().join("never");
        let work = work.to_str().expect("UTF-8");
        let late = ran(&["train", "head", &model("tiny.gguf"), "--own-prompts", "1", "-o", out, "--work", work]);
        assert!(late.code == Some(2) && late.stderr.contains(words), "{late:?}");
        assert!(!std::path::Path::new(work).exists(), "nothing is begun");
    }
    says(&["--features", "5,5"], 2, "5 is named twice");
    let work = dir.path().join("work");
    assert!(!work.exists(), "a run that was refused leaves no folder behind");

    // A folder that holds another run's answers.
    std::fs::create_dir(&work).expect("made");
    let answer = r#"{"domain":"own","prompt":[],"tokens":[],"max_tokens":9,"sampled":[1.0,1]}"#;
    std::fs::write(work.join("own-prompts.jsonl"), format!("{answer}\n")).expect("written");
    says(&["--own-prompts", "1"], 1, "the answer in line 1 is to another prompt");
    says(&["--own-prompts", "1"], 1, "delete it, or name another working folder with --work");
    std::fs::write(work.join("own-prompts.jsonl"), "?\n").expect("written");
    says(&["--own-prompts", "1"], 1, "own-prompts.jsonl: line 1 is no answer");
    let bare = ran(&["train", "head", &model("bare.gguf"), "--work", dir.path().join("w").to_str().expect("UTF-8")]);
    assert!(bare.code == Some(2) && bare.stderr.contains("no chat template"), "{bare:?}");
    let home = tempfile::tempdir().expect("a folder");
    let none =
        finish(selfspec(home.path()).args(["run", &model("tiny.gguf"), "-p", "x", "-n", "2", "--spec", "exit-head"]));
    assert!(none.code == Some(1) && none.stderr.contains("the model has no exit head"), "{none:?}");
}
