//! The published models that some tests run.
//!
//! Such tests are named `real_model_*` and marked `#[ignore]`, because the files are not part of
//! the repository. Whoever runs them (`cargo test -- --ignored`, as `.ci/run` does) names the
//! files; a missing file fails the test instead of passing it without running.

use std::path::PathBuf;

/// Variable that names the file of SmolLM2-135M-Instruct.
pub const SMOLLM2: &str = "SELFSPEC_TEST_MODEL";
/// Variable that names the file of Gemma 3 270M.
pub const GEMMA3: &str = "SELFSPEC_TEST_GEMMA";

/// The file that `variable` names.
///
/// # Panics
/// If the variable is not set, or names no file.
pub fn real_model(variable: &str) -> PathBuf {
    let alias = if variable == GEMMA3 { "gemma3-270m" } else { "smollm2-135m" };
    let path = std::env::var_os(variable).map(PathBuf::from);
    let path = path.unwrap_or_else(|| panic!("set {variable} to the path that `selfspec pull {alias}` prints"));
    assert!(path.is_file(), "{variable} names {}, which is no file", path.display());
    path
}
