//! Where prompts come from: a file, or the set that this program brings.

use std::path::Path;

use super::case::PromptCase;
use super::parse::{PromptsError, parse};

/// The set that this program brings: small, written for it, with tasks whose answers copy from the
/// prompt.
const BUILT_IN: &str = include_str!("builtin.jsonl");

/// The category of built-in prompts whose answers repeat their prompt.
pub const COPYING: &str = "copying";

/// The first `limit` prompts of a file, or of the built-in set.
///
/// # Errors
/// The file cannot be read, has a line that is no prompt, or has no prompts.
pub fn load(path: Option<&Path>, limit: Option<usize>) -> Result<Vec<PromptCase>, PromptsError> {
    let mut cases = match path {
        None => built_in(),
        Some(path) => {
            let read = std::fs::read(path);
            let bytes = read.map_err(|source| PromptsError::Read { path: path.to_owned(), source })?;
            parse(&bytes, &path.display().to_string())?
        }
    };
    cases.truncate(limit.unwrap_or(usize::MAX));
    Ok(cases)
}

/// The built-in set.
pub fn built_in() -> Vec<PromptCase> {
    parse(BUILT_IN.as_bytes(), "the built-in prompts").expect("a test reads the built-in prompts")
}

/// The first prompt of each category.
pub fn one_of_each(prompts: Vec<PromptCase>) -> Vec<PromptCase> {
    let mut kept: Vec<PromptCase> = Vec::new();
    for case in prompts {
        if kept.iter().all(|k| k.category != case.category) {
            kept.push(case);
        }
    }
    kept
}

/// At most `limit` of the prompts, at even distances.
pub fn spread(prompts: &[PromptCase], limit: usize) -> Vec<PromptCase> {
    let (n, limit) = (prompts.len(), limit.min(prompts.len()));
    (0..limit).map(|i| prompts[i * n / limit].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_prompts_cover_their_categories() {
        let cases = built_in();
        for category in ["chat", "code", COPYING, "unicode"] {
            assert!(cases.iter().filter(|c| c.category == category).count() >= 3, "{category}");
        }
        assert!(cases.iter().all(|c| c.text().is_some_and(|t| !t.is_empty())));
    }

    #[test]
    fn a_spread_has_even_distances() {
        let cases: Vec<PromptCase> = (0..10).map(|i| PromptCase::of_text("x", i.to_string())).collect();
        let texts =
            |limit| spread(&cases, limit).iter().filter_map(|c| c.text().map(str::to_owned)).collect::<String>();
        assert_eq!((texts(4).as_str(), texts(1).as_str(), texts(99).len()), ("0257", "0", 10));
        assert!(spread(&[], 3).is_empty());
    }
}
