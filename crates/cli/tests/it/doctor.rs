//! `doctor` on tiny models: a healthy one has no fault, and each fault that is planted is the first
//! that is named. No test here goes by a measured speed: what says something about speed is a note,
//! and c is compared with what is believed of the same steps.

use std::path::{Path, PathBuf};

use selfspec_engine::LoadedModel;
use selfspec_testkit::{Dims, Family, TensorType, TinyExitHead, TinyModel};
use serde_json::{Value, json};

use super::support::{Ran, file, keys, model, ran};

fn doctor(model: &str, more: &[&str]) -> Ran {
    let flags = ["doctor", model, "-n", "64", "--contexts", "64,300", "-t", "1", "-o", "json"];
    let limit = if more.contains(&"--limit") { &[][..] } else { &["--limit", "5"] };
    ran(&[&flags, limit, more].concat())
}

/// The causes of the faults that were found, in their order.
fn faults(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("an array").iter();
    findings.filter(|f| f["kind"] == "fault").map(|f| f["cause"].as_str().expect("a word")).collect()
}

fn healthy(model: &str, more: &[&str]) -> Value {
    let ran = doctor(model, more);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    assert_eq!((&report["healthy"], faults(&report)), (&json!(true), vec![]), "{report}");
    report
}

fn finds(model: &str, plant: &str, more: &[&str]) -> Value {
    let ran = doctor(model, &[&["--plant", plant], more].concat());
    assert_eq!(ran.code, Some(1), "{plant}: {ran:?}");
    let report = ran.json();
    assert_eq!(faults(&report).first(), Some(&plant), "{plant}: {report}");
    assert_eq!(
        (&report["healthy"], &report["planted"], &report["found"]),
        (&json!(false), &json!(plant), &json!(true))
    );
    report
}

/// A copy of a tiny model in a folder of its own, with an exit head that fits it.
fn with_head(exit: usize, features: &[usize]) -> (tempfile::TempDir, String, String) {
    let (dir, own) = copy();
    let loaded = LoadedModel::open(&own, Some(1)).expect("a model");
    let vocab = (0..loaded.info().vocab as u32).filter(|id| id % 5 != 3).collect();
    let head = dir.path().join("head.safetensors");
    let bytes = TinyExitHead::new(loaded.fingerprint(), exit, features, vocab).bytes(loaded.model().config());
    std::fs::write(&head, bytes).expect("written");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    (dir, text(&own), text(&head))
}

fn copy() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("tiny.gguf");
    std::fs::copy(model("tiny.gguf"), &own).expect("copied");
    (dir, own)
}

#[test]
fn a_healthy_model_has_no_fault_and_the_checks_tested_something() {
    let report = healthy(&model("tiny.gguf"), &[]);
    assert_eq!(keys(&report)[..5], ["model", "drafter", "prompts", "max_tokens", "planted"]);
    let checks = &report["checks"];
    let names = [
        "rollback",
        "output",
        "exit path",
        "cached states",
        "memory in a batch",
        "cost of a draft",
        "speed-up",
        "long context",
        "domain",
        "late decay",
    ];
    assert_eq!(keys(checks), names);
    for name in &names[..6] {
        assert_eq!(checks[name]["result"], "ok", "{name}: {checks}");
    }
    let count =
        |check: &str, key: &str| checks[check][key].as_u64().unwrap_or_else(|| panic!("{check}, {key}: {checks}"));
    assert!(count("rollback", "rollbacks") > 4 && count("output", "tokens") > 200);
    assert!(count("output", "accepted") > 10 && count("output", "rejected") > 10, "{checks}");
    assert!(count("memory in a batch", "peak_pages") >= count("memory in a batch", "pages"));
    assert!(checks["exit path"]["paths"][0]["off"].as_f64().is_some_and(|off| off > 0.0 && off < 0.1), "{checks}");
    assert_eq!(checks["long context"]["contexts"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["planted"], Value::Null);

    let text = ran(&["doctor", &model("tiny.gguf"), "--limit", "2", "-n", "24", "--contexts", "64", "-t", "1"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(
        text.stdout.contains("\n- rollback: ok; after ") && text.stdout.ends_with("Nothing is wrong.\n"),
        "{}",
        text.stdout
    );
}

#[test]
fn planted_faults_of_layer_skip_are_named_first() {
    let tiny = model("tiny.gguf");
    let norm = finds(&tiny, "norm", &[]);
    assert_eq!(faults(&norm), ["norm"], "what follows from it is not blamed on something else");
    let off = |key: &str| norm["checks"]["exit path"]["paths"][0][key].as_f64().expect("a figure");
    assert!(off("off") > 0.2 && off("off_without_norm") < 0.1, "{norm}");
    let rollback = finds(&tiny, "rollback", &[]);
    assert_eq!(faults(&rollback), ["rollback"]);
    let words = rollback["findings"][0]["words"].as_str().expect("words");
    assert!(
        words.contains("after round ") && words.contains("at token ") && words.contains("one position short"),
        "{words}"
    );
    let cost = finds(&tiny, "cost", &[]);
    assert_eq!(faults(&cost), ["cost"]);
    let cost = &cost["checks"]["cost of a draft"];
    let believed = cost["c_believed"][0]["c"].as_f64().expect("a figure");
    let c = cost["c"].as_f64().expect("a figure");
    assert!((c / believed - 2.0).abs() < 1e-6, "c {c}, believed {believed}");

    let text = ran(&["doctor", &tiny, "--limit", "2", "-n", "24", "--contexts", "64", "-t", "1", "--plant", "norm"]);
    assert_eq!(text.code, Some(1), "{text:?}");
    for words in
        ["**FAULT: norm**", "- symptom: drafts are garbage", "- cause: the norm", "- remedy: apply", "One fault."]
    {
        assert!(text.stdout.contains(words), "{words}: {}", text.stdout);
    }
}

#[test]
fn planted_faults_of_an_exit_head_are_named_first_and_a_sound_one_has_none() {
    for (exit, features) in [(0, &[6][..]), (2, &[]), (1, &[3, 6])] {
        let (_keep, own, head) = with_head(exit, features);
        let flags = ["--exit-head", &head];
        let report = healthy(&own, &flags);
        assert!(report["drafter"].as_str().is_some_and(|d| d.contains("the exit head")), "{report}");
        let paths = report["checks"]["exit path"]["paths"].as_array().expect("an array");
        assert_eq!(paths.len(), 2, "the model's own head at half of the layers is looked at as well");
        for plant in ["norm", "rollback", "cost"] {
            let report = finds(&own, plant, &flags);
            assert_eq!(faults(&report), [plant]);
        }
    }
}

/// A tuning beside the model: layer skip with all layers but the last, over a vocabulary.
fn tune(own: &Path, changes: &Value) {
    let loaded = LoadedModel::open_with(own, Some(1), &selfspec_engine::DraftSetup::none()).expect("a model");
    let mut tuning = json!({
        "version": 1, "model": "tiny", "fingerprint": loaded.fingerprint(), "isa": "", "threads": 1, "prompts": "mine.jsonl",
        "drafter": "layer-skip", "from": 5, "to": 6, "speedup": 1.5,
    });
    for (key, value) in changes.as_object().expect("an object") {
        tuning[key] = value.clone();
    }
    std::fs::write(selfspec_engine::Tuning::path(own), tuning.to_string()).expect("written");
}

/// A draft vocabulary counted on the answers to one kind of prompt covers those of another badly: a
/// shift that a real tuning knows too.
#[test]
fn prompts_of_a_kind_that_the_tuning_never_saw_are_named_as_that() {
    let (dir, own) = copy();
    let path = own.to_str().expect("UTF-8").to_owned();
    let mine: Vec<String> = (0..5).map(|i| format!("tell me {i} things about the sea")).collect();
    let lines: Vec<String> = mine.iter().map(|p| json!({"prompt": p, "category": "sea"}).to_string()).collect();
    let prompts = dir.path().join("mine.jsonl");
    std::fs::write(&prompts, lines.join("\n")).expect("written");
    let flags = ["--prompts", prompts.to_str().expect("UTF-8")];
    let refused = ran(&["doctor", &path, "--plant", "domain"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("no acceptance is on record"), "{refused:?}");

    let mut ids: Vec<u64> = Vec::new();
    for prompt in &mine {
        let answer = ran(&["run", &path, "-p", prompt, "-n", "64", "--json", "--spec", "off", "-t", "1"]).json();
        ids.extend(answer["token_ids"].as_array().expect("an array").iter().filter_map(Value::as_u64));
    }
    ids.sort_unstable();
    ids.dedup();
    tune(&own, &json!({"draft_vocab": ids}));
    let first = healthy(&path, &flags);
    let acceptance = &first["checks"]["domain"]["acceptance"];
    assert!(acceptance["sea"][0].as_f64() > Some(0.4), "{first}");
    assert_eq!(first["checks"]["domain"]["result"], "not checked");
    tune(&own, &json!({"draft_vocab": ids, "acceptance": acceptance, "c": 5.0}));
    let again = healthy(&path, &flags);
    assert_eq!(
        (&again["checks"]["domain"]["result"], &again["checks"]["domain"]["record"]),
        (&json!("ok"), &json!("the tuning"))
    );
    let planted = finds(&path, "domain", &[&flags[..], &["--limit", "12"]].concat());
    assert_eq!(faults(&planted), ["domain"]);
    let words = planted["findings"][0]["words"].as_str().expect("words");
    assert!(words.contains("`foreign`") && words.contains("`noise`") && words.contains("not on record"), "{words}");

    // A c on record that nothing here can reach is underestimated; unread, it is nothing.
    tune(&own, &json!({"draft_vocab": ids, "c": 1e-9}));
    let report = doctor(&path, &flags).json();
    assert_eq!(faults(&report), ["cost"]);
    assert!(report["findings"][0]["words"].as_str().is_some_and(|w| w.contains("the tuning has 0.00")), "{report}");
    healthy(&path, &[&flags[..], &["--no-tuning"]].concat());
}

#[test]
fn a_tuning_that_does_not_speculate_or_copies_leaves_the_rest_examined() {
    let (_dir, own) = copy();
    let path = own.to_str().expect("UTF-8");
    tune(&own, &json!({"drafter": "off"}));
    assert_eq!(healthy(path, &[])["drafter"], "layers 0..3");
    tune(&own, &json!({"drafter": "prompt-lookup"}));
    let report = healthy(path, &[]);
    assert_eq!(report["drafter"], "prompt lookup");
    assert_eq!(report["checks"]["exit path"]["result"], "ok");
    assert_eq!(report["checks"]["cost of a draft"]["result"], "not checked");
}

#[test]
fn small_models_are_examined_as_far_as_they_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, model: TinyModel| {
        let path = dir.path().join(name);
        model.gguf().write(&path);
        path.to_str().expect("UTF-8").to_owned()
    };
    let tiny = || TinyModel::new(Family::Llama).ty(TensorType::Q8_0);
    let one = healthy(&write("one.gguf", tiny().layers(1)), &[]);
    assert_eq!(one["drafter"], "prompt lookup");
    for check in ["rollback", "exit path", "cost of a draft"] {
        assert_eq!(one["checks"][check]["result"], "not checked", "{check}: {one}");
    }
    let short = write("short.gguf", tiny().with_dims(Dims { context: 96, ..Dims::for_type(TensorType::Q8_0) }));
    let (_keep, prompts) = file("p.jsonl", "{\"prompt\": \"a b\"}\n{\"prompt\": \"c d e\"}\n");
    let flags = ["--raw", "--prompts", prompts.to_str().expect("UTF-8")];
    let report = healthy(&short, &flags);
    assert_eq!(report["checks"]["long context"]["result"], "not checked");
    assert_eq!(report["checks"]["cost of a draft"]["result"], "ok", "in the context that there is: {report}");
    let (_keep, long) = file("long.jsonl", &format!("{{\"prompt\": \"{}\"}}\n", "q7 ".repeat(90)));
    let refused = doctor(&short, &["--raw", "--prompts", long.to_str().expect("UTF-8")]);
    let says = "no prompt leaves room for an answer of 8 tokens: the prompt of line 1 has ";
    assert!(refused.code == Some(1) && refused.stderr.contains(says), "{refused:?}");
    healthy(&model("bare.gguf"), &[]); // no chat template
}

#[test]
fn what_cannot_be_examined_is_refused_with_a_name() {
    let says = |model: &str, more: &[&str], code: i32, words: &str| {
        let ran = doctor(model, more);
        assert!(ran.code == Some(code) && ran.stderr.contains(words) && ran.stdout.is_empty(), "{more:?}: {ran:?}");
    };
    let (_keep, empty) = file("empty.jsonl", "\n");
    let (tiny, empty) = (model("tiny.gguf"), empty.to_str().expect("UTF-8").to_owned());
    says(&tiny, &["--prompts", &empty], 2, "empty.jsonl: no prompts");
    says(&tiny, &["--prompts", "/gone.jsonl"], 1, "cannot read /gone.jsonl");
    says("/gone.gguf", &[], 1, "/gone.gguf");
    says(&model("broken.gguf"), &[], 1, "broken.gguf");
    says(&tiny, &["--exit-head", "/gone.safetensors"], 1, "/gone.safetensors");
    says(&tiny, &["--plant", "fire"], 2, "norm, rollback, cost, domain");
    let (_dir, _own, head) = with_head(1, &[]);
    says(&model("bare.gguf"), &["--exit-head", &head], 1, "it was trained for");
    let (_dir, own) = copy();
    std::fs::write(selfspec_engine::Tuning::path(&own), "{\"version\": 1").expect("written");
    says(own.to_str().expect("UTF-8"), &[], 1, "tiny.gguf.tuning.json: not a tuning");
}
