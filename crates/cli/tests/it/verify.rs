//! `verify` on a tiny model.

use super::support::{Ran, file, keys, model, ran};

fn verify(args: &[&str]) -> Ran {
    ran(&[&["verify", &model("tiny.gguf")], args].concat())
}

#[test]
fn a_tiny_model_is_lossless_and_the_proof_tested_something() {
    let proof = verify(&["--json", "--threads", "1,2", "-n", "40"]);
    assert_eq!(proof.code, Some(0), "{}", proof.stderr);
    let json = proof.json();
    let known = ["ok", "cases", "tokens", "drafted", "accepted", "rejected", "accepted_lengths", "first_mismatch"];
    assert_eq!(keys(&json), [&known[..], &["untested"]].concat());
    assert_eq!(json["untested"], serde_json::json!([]));
    assert_eq!((&json["ok"], &json["first_mismatch"]), (&true.into(), &serde_json::Value::Null));
    let lengths: Vec<_> =
        json["accepted_lengths"].as_array().expect("an array").iter().filter_map(|n| n.as_u64()).collect();
    assert_eq!(lengths.len(), 9);
    assert!(lengths.iter().all(|n| *n > 0), "{lengths:?}");
    assert!(json["cases"].as_u64() >= Some(64) && json["rejected"].as_u64() > Some(0), "{json}");
}

#[test]
fn a_cache_of_q8_is_as_lossless() {
    let proof = verify(&["--json", "--threads", "1,2", "-n", "40", "--kv-type", "q8"]);
    assert_eq!((proof.code, &proof.json()["ok"]), (Some(0), &true.into()), "{}", proof.stderr);
}

#[test]
fn the_table_names_drafters_and_coverage() {
    let (_dir, path) =
        file("prompts.jsonl", "{\"prompt\": \"one two one two one two\"}\n{\"turns\": [\"three four\", \"x\"]}\n");
    let proof = verify(&["--prompts", &path.display().to_string(), "--threads", "1,2", "-n", "32", "--limit", "1"]);
    assert_eq!(proof.code, Some(0), "{}\n{}", proof.stdout, proof.stderr);
    for word in [
        "drafter",
        "layer skip, exit 3",
        "layer skip, without 2..4",
        "prompt lookup",
        "auto",
        "rounds by tokens accepted",
        "cases by draft length",
        "cases by threads           1: ",
        "cases alone / in a batch   ",
        "rejection sampling",
        " deliberately wrong rules caught\n",
        "lossless: ",
    ] {
        assert!(proof.stdout.contains(word), "{word}: {}", proof.stdout);
    }
}

#[test]
fn a_proof_that_tested_nothing_fails() {
    // One token leaves no room to accept eight.
    let proof = verify(&["-n", "1", "--threads", "1", "--json"]);
    assert_eq!(proof.code, Some(1));
    let json = proof.json();
    assert_eq!((&json["ok"], &json["first_mismatch"]), (&false.into(), &serde_json::Value::Null));
    assert!(json["untested"].as_array().is_some_and(|u| !u.is_empty() && u.iter().all(serde_json::Value::is_string)));
    assert!(proof.stderr.contains("error: too little was tested: "), "{}", proof.stderr);
}

#[test]
fn every_prompt_can_be_run_under_every_setting() {
    let (_dir, path) = file("prompts.jsonl", "{\"prompt\": \"again again again again again\"}\n");
    let flags = ["--exhaustive", "-n", "24", "--threads", "1", "--isa", "scalar", "--json"];
    let proof = verify(&[&flags[..], &["--prompts", &path.display().to_string()]].concat());
    assert_eq!(proof.code, Some(0), "{}", proof.stderr);
    // Greedy and seeded, alone and together: six drafters at eight lengths, auto and off.
    assert!(proof.json()["cases"].as_u64() >= Some(2 * 2 * (6 * 8 + 2)), "{}", proof.stdout);
}
