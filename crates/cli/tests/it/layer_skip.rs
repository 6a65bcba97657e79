//! `train layer-skip` on a tiny model: from text to a model that other commands run, and the
//! regression run that refuses a worse one.

use std::path::Path;

use super::support::{Ran, file, model, ran};

/// Sixty short texts that repeat themselves: a tiny model learns them in a few steps.
fn texts() -> String {
    let line = |i: usize| format!("{{\"text\": \"one two three {} two three one two three {i}\"}}\n", i % 7);
    (0..60).map(line).collect()
}

fn train(dir: &Path, model: &str, text: &Path, more: &[&str]) -> Ran {
    let (work, text) = (dir.join("work"), text.to_str().expect("UTF-8"));
    let work = work.to_str().expect("UTF-8");
    let flags =
        ["train", "layer-skip", model, "--work", work, "--text", text, "--span", "32", "--batch", "256", "-t", "2"];
    ran(&[&flags, more].concat())
}

#[test]
fn a_model_is_trained_on_text_and_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_keep, text) = file("text.jsonl", &texts());
    for (name, out) in [("tiny.gguf", "out.gguf"), ("folder", "out")] {
        let out = dir.path().join(out);
        let to = out.to_str().expect("UTF-8");
        let flags = ["-o", to, "--rate", "0.003", "--exits", "2,3", "--layer-dropout", "0.4", "--exit-weight", "0.5"];
        let trained = train(dir.path(), &model(name), &text, &flags);
        assert_eq!(trained.code, Some(0), "{trained:?}");
        let lines: Vec<&str> = trained.stdout.lines().map(str::trim).collect();
        assert!(lines[1].starts_with("exit after 2") && lines[2].starts_with("exit after 3"), "{trained:?}");
        assert!(lines[3].starts_with("all ") && lines[3].ends_with('%') && lines[3].contains(" -"), "{trained:?}");
        assert!(trained.stderr.contains("tokens to train on") && trained.stderr.contains("is ready"), "{trained:?}");
        let said = |flags: &[&str]| {
            ran(&[&["run", to, "-p", "one two", "--raw", "-n", "16", "--json"], flags].concat()).json()
        };
        let plain = said(&["--spec", "off"]);
        let drafted = said(&["--spec", "layer-skip", "--exit-layer", "2", "--spec-always"]);
        assert_eq!(plain["token_ids"], drafted["token_ids"], "drafts change nothing");

        // Nothing is left to do: the same model comes out.
        let first =
            std::fs::read(if out.is_dir() { out.join("model.safetensors") } else { out.clone() }).expect("there");
        let again = train(dir.path(), &model(name), &text, &flags);
        assert!(again.code == Some(0) && again.stderr.contains("going on from step"), "{again:?}");
        let second = std::fs::read(if out.is_dir() { out.join("model.safetensors") } else { out }).expect("there");
        assert!(first == second && again.stdout == trained.stdout, "{again:?}");
        std::fs::remove_dir_all(dir.path().join("work")).expect("there");
    }
}

#[test]
fn the_model_answers_prompts_to_be_trained_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let lines: String = (0..12).map(|i| format!("{{\"prompt\": \"hello {i} there\"}}\n")).collect();
    let ((_a, prompts), (_b, text)) = (file("prompts.jsonl", &lines), file("text.txt", &"one two three ".repeat(60)));
    let out = dir.path().join("out.gguf");
    let flags = ["--prompts", prompts.to_str().expect("UTF-8"), "-n", "8", "--steps", "2", "--tolerance", "1000"];
    let trained =
        train(dir.path(), &model("tiny.gguf"), &text, &[&flags[..], &["-o", out.to_str().expect("UTF-8")]].concat());
    assert_eq!(trained.code, Some(0), "{trained:?}");
    assert!(dir.path().join("work/answers.jsonl").exists() && out.exists());
}

#[test]
fn a_result_that_is_worse_is_refused_and_kept_only_on_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let ((_a, text), (_b, judged)) =
        (file("text.jsonl", &texts()), file("eval.txt", &"four five six seven ".repeat(40)));
    let out = dir.path().join("out.gguf");
    let flags = [
        "-o",
        out.to_str().expect("UTF-8"),
        "--rate",
        "0.1",
        "--epochs",
        "6",
        "--eval-text",
        judged.to_str().expect("UTF-8"),
    ];
    let refused = train(dir.path(), &model("tiny.gguf"), &text, &flags);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("the full pass's perplexity rose from ")
            && refused.stderr.contains("the result is not good"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("the model is not written") && !out.exists(), "{refused:?}");
    assert!(refused.stdout.contains("all 6 layers") && dir.path().join("work/checkpoint").exists(), "{refused:?}");
    let kept = train(dir.path(), &model("tiny.gguf"), &text, &[&flags[..], &["--keep"]].concat());
    assert!(kept.code == Some(1) && kept.stderr.contains("is written all the same") && out.exists(), "{kept:?}");
}

#[test]
fn what_cannot_be_trained_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_keep, text) = file("text.jsonl", &texts());
    let tiny = model("tiny.gguf");
    let says = |text: &Path, more: &[&str], code: i32, words: &str| {
        let ran = train(dir.path(), &tiny, text, more);
        assert!(ran.code == Some(code) && ran.stderr.contains(words), "{more:?}: {ran:?}");
    };
    let ((_a, empty), (_b, one), (_c, wrong)) =
        (file("empty.txt", "\n"), file("one.txt", "a"), file("wrong.jsonl", "{\"text\": 3}\n"));
    says(&empty, &[], 1, "nothing to train on: the texts have 0 tokens");
    says(&one, &[], 1, "nothing to train on: the texts have ");
    says(&wrong, &[], 2, "wrong.jsonl, line 1: there is no `text`");
    says(Path::new("nowhere.txt"), &[], 1, "cannot read nowhere.txt");
    says(&text, &["--exits", "6"], 2, "--exits 6: the model has 6 layers");
    says(&text, &["--exits", "0"], 2, "--exits");
    says(&text, &["--layer-dropout", "0.6"], 2, "expected a number from 0 to 0.5");
    says(&text, &["-o", &tiny], 2, "that is the model itself");
    says(&text, &["-o", "nowhere/out.gguf"], 2, "there is no folder nowhere");
    let long = ran(&["train", "layer-skip", &tiny, "--text", text.to_str().expect("UTF-8"), "--span", "100000"]);
    assert!(
        long.code == Some(2) && long.stderr.contains("--span 100000: the model was made for 512 positions"),
        "{long:?}"
    );
    let none = ran(&["train", "layer-skip", &tiny]);
    assert!(none.code == Some(2) && none.stderr.contains("no text to train on"), "{none:?}");
}
