//! A clean environment, and tiny models in it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assert_cmd::Command;
use selfspec_testkit::{Family, TensorType, TinyModel};
use serde_json::Value;
use tempfile::TempDir;

/// A folder for all tests of this run, with the models that they share.
pub(crate) struct Models {
    pub(crate) dir: TempDir,
}

static MODELS: LazyLock<Models> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = TinyModel::new(Family::Llama).ty(TensorType::Q8_0).layers(6);
    model.gguf().write(&dir.path().join("tiny.gguf"));
    let mut bare = TinyModel::new(Family::Llama);
    bare.vocab.chat_template = String::new();
    bare.gguf().remove("tokenizer.chat_template").write(&dir.path().join("bare.gguf"));
    TinyModel::new(Family::Qwen3).folder().write(&dir.path().join("folder"));
    std::fs::write(dir.path().join("broken.gguf"), b"GGUF").expect("a file");
    Models { dir }
});

/// The path of a shared model: `tiny.gguf`, `bare.gguf` (no chat template), `folder`,
/// `broken.gguf`.
pub(crate) fn model(name: &str) -> String {
    MODELS.dir.path().join(name).display().to_string()
}

/// The command in an environment of its own: no variables but the ones it needs, an empty cache,
/// empty standard input.
pub(crate) fn selfspec(home: &Path) -> Command {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("selfspec");
    command.env_clear().env("SELFSPEC_HOME", home).env("HOME", home).env("COLUMNS", "100");
    // Nothing is reached: no program is on the path, nothing listens at the endpoint.
    command.env("PATH", home.join("no-programs")).env("HF_ENDPOINT", "http://127.0.0.1:9").write_stdin("");
    command
}

/// What a run of the command gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs the command with arguments in an empty cache.
pub(crate) fn ran(args: &[&str]) -> Ran {
    let home = tempfile::tempdir().expect("a temporary folder");
    finish(selfspec(home.path()).args(args))
}

pub(crate) fn finish(command: &mut Command) -> Ran {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The keys of a JSON object, in their order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("an object: {value}")).keys().map(String::as_str).collect()
}

/// A file in a temporary folder that lives as long as the first value.
pub(crate) fn file(name: &str, content: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("a file");
    (dir, path)
}
