//! `tune` on a tiny model: what it prints, what it writes, and that later runs read it.

use super::support::{file, model, ran};

#[test]
fn a_tuning_is_printed_drawn_and_written_beside_the_model() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("tiny.gguf");
    std::fs::copy(model("tiny.gguf"), &own).expect("copied");
    let (report, own) = (dir.path().join("report.html"), own.to_str().expect("UTF-8").to_owned());
    let tuning = dir.path().join("tiny.gguf.tuning.json");
    let report_path = report.to_str().expect("UTF-8");
    let flags = [
        "tune",
        &own,
        "--limit",
        "3",
        "-n",
        "24",
        "--contexts",
        "64,9999999",
        "--exits",
        "2,5",
        "--draft-vocab",
        "100",
        "--report",
        report_path,
    ];
    let dry = ran(&[&flags[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(!tuning.exists(), "a dry run leaves things as they are");
    for word in [
        "| drafter ",
        "| prompt lookup ",
        "| exit 2 ",
        "| exit 5 ",
        "| without ",
        "b(4)",
        "Layer skip drafts 100 tokens",
    ] {
        assert!(dry.stdout.contains(word), "{word}: {}", dry.stdout);
    }
    let speculates = |text: &str| {
        let advice = ["Speculate with", "Do not speculate"].map(|words| text.contains(words));
        assert_ne!(advice[0], advice[1], "one of the two, and not the other: {text}");
        advice[0]
    };
    let page = std::fs::read_to_string(&report).expect("a report");
    assert_eq!(speculates(&page), speculates(&dry.stdout));
    assert_eq!(page.matches("<svg").count(), 3, "{page}");
    for foreign in ["http://", "https://", "<script", "@import"] {
        let inside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!inside.contains(foreign), "the page needs nothing else: {foreign}");
    }

    let wet = ran(&flags);
    assert_eq!(wet.code, Some(0), "{wet:?}");
    let written = std::fs::read_to_string(&tuning).expect("a tuning");
    let off = serde_json::from_str::<serde_json::Value>(&written).expect("JSON")["drafter"] == "off";
    assert_eq!(speculates(&wet.stdout), !off, "{written}");
    let plain = |more: &[&str]| ran(&[&["run", &own, "-p", "hello", "-n", "20", "--json"], more].concat());
    let ids = |more: &[&str]| plain(more).json()["token_ids"].clone();
    assert_eq!(ids(&[]), ids(&["--spec", "off"]));

    // What it says is done: layer skip at layer 2, over a vocabulary; and nothing at all.
    let edit = |drafter: &str| {
        let mut json: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        for (key, value) in
            serde_json::from_str::<serde_json::Value>(drafter).expect("JSON").as_object().expect("an object")
        {
            json[key] = value.clone();
        }
        std::fs::write(&tuning, json.to_string()).expect("written");
    };
    edit(r#"{"drafter": "layer-skip", "from": 2, "to": 6, "draft_vocab": [1, 2, 3, 50, 60]}"#);
    let skip = plain(&["--spec-always", "--draft-len", "3", "--trace"]);
    assert!(skip.stderr.contains("layer-skip"), "{skip:?}");
    assert_eq!(skip.json()["token_ids"], ids(&["--no-tuning", "--spec", "off"]));
    edit(r#"{"drafter": "off"}"#);
    assert_eq!(plain(&[]).json()["speculation"]["drafter"], "off");
    assert_ne!(plain(&["--no-tuning"]).json()["speculation"]["drafter"], "off");
    assert_ne!(plain(&["--spec", "prompt-lookup"]).json()["speculation"]["drafter"], "off", "a flag is stronger");

    // Of other weights it is not used, and what is no tuning is an error with its name.
    edit(r#"{"drafter": "off", "fingerprint": "0815"}"#);
    let other = plain(&[]);
    assert_ne!(other.json()["speculation"]["drafter"], "off");
    assert!(other.stderr.contains("of other weights"), "{other:?}");
    std::fs::write(&tuning, "[]").expect("written");
    let broken = plain(&[]);
    assert!(broken.code == Some(1) && broken.stderr.contains("tiny.gguf.tuning.json: not a tuning"), "{broken:?}");
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    let (_keep, empty) = file("empty.jsonl", "");
    let tiny = model("tiny.gguf");
    let says = |more: &[&str], code: i32, words: &str| {
        let ran = ran(&[&["tune", &tiny, "--dry-run", "--limit", "1", "-n", "4"], more].concat());
        assert!(ran.code == Some(code) && ran.stderr.contains(words), "{more:?}: {ran:?}");
    };
    says(&["--prompts", empty.to_str().expect("UTF-8")], 2, "no prompts");
    says(&["--contexts", "9999999"], 1, "too short for any of them");
    says(&["--exits", "6"], 1, "the model has 6 layers");
    says(&["--report", "nowhere/r.html"], 2, "--report nowhere/r.html: there is no folder nowhere");
}
