//! The default model, where its file is at hand: `SELFSPEC_TEST_MODEL` names it; `selfspec pull` prints the path of one.

use super::support::{keys, ran};

fn real_model() -> Option<String> {
    let path = std::env::var("SELFSPEC_TEST_MODEL").ok();
    if path.is_none() {
        eprintln!("skipped: set SELFSPEC_TEST_MODEL to the path that `selfspec pull smollm2-135m` prints");
    }
    path
}

#[test]
fn real_model_answers_alike_with_and_without_speculation() {
    let Some(model) = real_model() else { return };
    let base = ["run", &model, "-p", "Explain how a bicycle stays upright", "-n", "48", "--json"];
    let plain = ran(&[&base[..], &["--spec", "off"]].concat()).json();
    for flags in [&["--exit-layer", "24", "--spec-always"][..], &["--spec", "prompt-lookup"], &["--spec", "auto"]] {
        let json = ran(&[&base[..], flags].concat()).json();
        assert_eq!(json["token_ids"], plain["token_ids"], "{flags:?}");
    }
    assert!(plain["text"].as_str().is_some_and(|t| t.to_lowercase().contains("bicycle")), "{plain}");
}

#[test]
fn real_model_is_verified() {
    let Some(model) = real_model() else { return };
    let proof = ran(&["verify", &model, "--limit", "8", "-n", "32", "--threads", "1,2", "--json"]);
    assert_eq!(proof.code, Some(0), "{}", proof.stderr);
    let json = proof.json();
    assert_eq!(json["ok"], true, "{json}");
    assert!(keys(&json).contains(&"accepted_lengths"));
}

#[test]
fn real_model_copies_from_its_prompt_faster_with_prompt_lookup() {
    let Some(model) = real_model() else { return };
    let text =
        "Repeat this list: apples and pears, bread and butter, coffee and cream, apples and pears, bread and butter";
    let json = ran(&["run", &model, "-p", text, "-n", "64", "--json", "--spec", "prompt-lookup"]).json();
    let (rounds, tokens) = (&json["timings"]["rounds"], &json["usage"]["completion_tokens"]);
    assert!(rounds.as_u64() < tokens.as_u64(), "fewer passes than tokens: {json}");
}
