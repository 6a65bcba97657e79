//! The command with the default model.

use selfspec_testkit::real_model::{SMOLLM2, real_model};

use super::support::{keys, ran};

fn smollm2() -> String {
    real_model(SMOLLM2).into_os_string().into_string().expect("a path in UTF-8")
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_answers_alike_with_and_without_speculation() {
    let model = smollm2();
    let base = ["run", &model, "-p", "Explain how a bicycle stays upright", "-n", "48", "--json"];
    let plain = ran(&[&base[..], &["--spec", "off"]].concat()).json();
    let kinds = [
        &["--exit-layer", "24", "--spec-always"][..],
        &["--spec", "prompt-lookup"],
        &["--spec", "auto"],
        &["--spec", "exit-head", "--spec-always", "--draft-len", "5"],
    ];
    for flags in kinds {
        let json = ran(&[&base[..], flags].concat()).json();
        assert_eq!(json["token_ids"], plain["token_ids"], "{flags:?}");
    }
    assert!(plain["text"].as_str().is_some_and(|t| t.to_lowercase().contains("bicycle")), "{plain}");
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_is_verified() {
    let model = smollm2();
    let proof = ran(&["verify", &model, "--limit", "8", "-n", "32", "--threads", "1,2", "--json"]);
    assert_eq!(proof.code, Some(0), "{}", proof.stderr);
    let json = proof.json();
    assert_eq!(json["ok"], true, "{json}");
    assert!(keys(&json).contains(&"accepted_lengths"));
}

/// The head that comes with the program drafts what the model says, at a temperature as well.
#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_is_drafted_for_by_the_head_that_comes_with_the_program() {
    let model = smollm2();
    let base = ["run", &model, "--spec", "exit-head", "--spec-always", "--json", "--seed", "5", "-n", "128"];
    for temperature in ["0", "0.8"] {
        let prompt = "Write a Python function that adds up a list of numbers, and explain it.";
        let json = ran(&[&base[..], &["--temp", temperature, "-p", prompt]].concat()).json();
        let (tokens, rounds) = (json["usage"]["completion_tokens"].as_f64(), json["timings"]["rounds"].as_f64());
        let a_round = tokens.zip(rounds).map(|(tokens, rounds)| tokens / rounds);
        assert!(a_round.is_some_and(|tokens| tokens > 1.4), "{json}");
    }
    let off = ran(&["run", &model, "--exit-head", "off", "--spec", "exit-head", "-p", "x"]);
    assert_ne!(off.code, Some(0), "there is none then");
}

#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_copies_from_its_prompt_faster_with_prompt_lookup() {
    let model = smollm2();
    let text =
        "Repeat this list: apples and pears, bread and butter, coffee and cream, apples and pears, bread and butter";
    let json = ran(&["run", &model, "-p", text, "-n", "64", "--json", "--spec", "prompt-lookup"]).json();
    let (rounds, tokens) = (&json["timings"]["rounds"], &json["usage"]["completion_tokens"]);
    assert!(rounds.as_u64() < tokens.as_u64(), "fewer passes than tokens: {json}");
}

#[cfg(unix)]
#[test]
#[ignore = "needs a published model: see CONTRIBUTING.md"]
fn real_model_stops_at_ctrl_c_with_its_figures_and_130() {
    use std::io::Read;
    use std::process::{Command, Stdio};

    let model = smollm2();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("selfspec"))
        .args(["run", &model, "-p", "Write a very long story about the sea", "-n", "4000", "--spec", "off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut first = [0];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("some text");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("finished by cancelled"), "{stderr}");
}
