//! The texts of a training, as tokens: plain files, JSON lines with `text`, or prompts with the
//! model's own answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions, LoadedModel};
use selfspec_model::TokenId;
use selfspec_speculate::SamplingParams;
use serde_json::Value;

use super::answers::{AnswerTask, generate};
use super::control::TrainingControl;
use super::error::TrainingError;
use crate::prompts::{self, PromptStyle};

/// Sequences of a step while answers are generated.
pub(super) const BATCH: usize = 48;
/// Bytes of KV cache while answers are generated.
pub(super) const KV_BYTES: usize = 2 << 30;

/// The documents of some files, each as tokens: after BOS if the model wants one, and before
/// end-of-text if the model has one. Shape: (document)(token).
pub(super) fn read(files: &[PathBuf], loaded: &LoadedModel) -> Result<Vec<Vec<TokenId>>, TrainingError> {
    let tokenizer = loaded.tokenizer().ok_or(TrainingError::NoTokenizer)?;
    let mut documents = Vec::new();
    for file in files {
        for (line, text) in texts(file)? {
            let place = || match line {
                0 => file.display().to_string(),
                line => format!("{}, line {line}", file.display()),
            };
            let tokens = tokenizer.encode(&text, true);
            let mut tokens = tokens.map_err(|source| TrainingError::Tokenizer { place: place(), source })?;
            tokens.extend(end(loaded));
            documents.push(tokens);
        }
    }
    Ok(documents)
}

/// The token that ends a text.
fn end(loaded: &LoadedModel) -> Option<TokenId> {
    let ends = loaded.tokenizer()?.eos_ids();
    ends.iter().copied().find(|id| (*id as usize) < loaded.info().vocab)
}

/// The texts of a file, each with its line from 1, or 0 for the whole file. Texts of space alone
/// are left out.
fn texts(file: &Path) -> Result<Vec<(usize, String)>, TrainingError> {
    let bytes = std::fs::read(file).map_err(TrainingError::io("read", file))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let why = format!("byte {} is not UTF-8", e.utf8_error().valid_up_to());
        TrainingError::Text { place: file.display().to_string(), why }
    })?;
    let lines = file.extension().is_some_and(|end| end == "jsonl" || end == "ndjson");
    if !lines {
        return Ok(if text.trim().is_empty() { Vec::new() } else { vec![(0, text)] });
    }
    let mut texts = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| TrainingError::Text { place: format!("{}, line {}", file.display(), i + 1), why };
        let value: Value = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        match value.get("text").and_then(Value::as_str) {
            Some(text) if text.trim().is_empty() => {}
            Some(text) => texts.push((i + 1, text.to_owned())),
            None => return Err(wrong("there is no `text`, or it is no string".to_owned())),
        }
    }
    Ok(texts)
}

/// Prompts and the model's own answers, kept in `path` as they come. Shape: (document)(token).
pub(super) fn answered(
    files: &[PathBuf],
    loaded: &Arc<LoadedModel>,
    threads: Option<usize>,
    max_tokens: usize,
    path: &Path,
    control: &dyn TrainingControl,
) -> Result<Vec<Vec<TokenId>>, TrainingError> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let options = EngineOptions { threads, kv_bytes: Some(KV_BYTES), max_batch: BATCH, ..EngineOptions::default() };
    let engine = Engine::open_with(loaded, &options)?;
    let style = PromptStyle::of(false, engine.info());
    let mut tasks = Vec::new();
    for file in files {
        tasks.extend(prompts::load(Some(file), None)?.into_iter().map(|case| AnswerTask {
            domain: case.category.clone(),
            prompt: case.prompt(style),
            sampling: SamplingParams::default(),
            max_tokens,
        }));
    }
    let answers = generate(&engine, "answering prompts", &tasks, path, control)?;
    let document = |mut tokens: Vec<TokenId>, answer: Vec<TokenId>| {
        tokens.extend(answer);
        tokens.extend(end(loaded));
        tokens
    };
    Ok(answers.into_iter().map(|answer| document(answer.prompt, answer.tokens)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_either_kind_are_read_and_wrong_lines_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).expect("written");
            path
        };
        assert_eq!(texts(&file("a.txt", b"one\ntwo")).expect("text"), [(0, "one\ntwo".to_owned())]);
        assert_eq!(texts(&file("b.txt", b" \n")).expect("nothing"), []);
        let lines = file("c.jsonl", b"{\"text\": \"one\"}\n\n{\"text\": \" \"}\n{\"text\": \"two\"}\n");
        assert_eq!(texts(&lines).expect("two"), [(1, "one".to_owned()), (4, "two".to_owned())]);
        let why = |name: &str, content: &[u8]| texts(&file(name, content)).expect_err("wrong").to_string();
        assert!(
            why("d.jsonl", b"{\"text\": \"one\"}\n{\"prompt\": 1}")
                .ends_with("d.jsonl, line 2: there is no `text`, or it is no string")
        );
        assert!(why("e.jsonl", b"{").contains("e.jsonl, line 1: "));
        assert!(why("f.txt", b"ab\xff").ends_with("f.txt: byte 2 is not UTF-8"));
        assert!(texts(&dir.path().join("none")).expect_err("none").to_string().starts_with("cannot read "));
    }
}
