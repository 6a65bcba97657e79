//! What the parts of names may consist of.

use std::borrow::Cow;
use std::path::Path;

/// The name that is meant where only models of the hub are: a bare `org/repo` is `hf:org/repo`,
/// unless there is such a file or folder.
pub fn hub_name(name: &str) -> Cow<'_, str> {
    let is_repo = name.split_once('/').is_some_and(|(org, repo)| is_word(org) && is_word(repo));
    if is_repo && !Path::new(name).exists() { Cow::Owned(format!("hf:{name}")) } else { Cow::Borrowed(name) }
}

/// One component of letters, digits, `.`, `_` and `-`, neither `.` nor `..`.
pub(crate) fn is_word(s: &str) -> bool {
    !s.is_empty()
        && s != "."
        && s != ".."
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// A relative path of plain components, separated by `/`: it does not leave its folder, and has no
/// drive and no control characters.
pub(crate) fn is_plain_path(s: &str) -> bool {
    !s.is_empty()
        && s.split('/').all(|c| {
            !c.is_empty()
                && c != "."
                && c != ".."
                && !c.chars().any(|c| c.is_control() || matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_repository_is_one_of_the_hub_unless_there_is_such_a_file() {
        assert_eq!(hub_name("org/repo"), "hf:org/repo");
        for same in ["smollm2-135m", "./org/repo", "org/repo/file.gguf", "hf:org/repo", "src/name.rs", "../x"] {
            assert_eq!(hub_name(same), same);
        }
    }
}
