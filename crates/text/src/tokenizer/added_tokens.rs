//! Tokens that are found whole in a text, before pre-tokenizing and merging.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::TextError;

/// A token to be found by its spelling.
#[derive(Debug, Clone)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) spelling: String,
    /// Takes the white space before it, or after it, along (tokenizer.json only).
    pub(crate) left_strip: bool,
    pub(crate) right_strip: bool,
    /// Only where no word character stands beside it (tokenizer.json only).
    pub(crate) single_word: bool,
}

impl AddedToken {
    pub(crate) fn plain(id: u32, spelling: &str) -> AddedToken {
        AddedToken { id, spelling: spelling.to_owned(), left_strip: false, right_strip: false, single_word: false }
    }
}

/// A part of a text cut at added tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Finds added tokens: from the left, and of several at one place the longest.
#[derive(Debug)]
pub(crate) struct AddedTokenMatcher {
    automaton: Option<AhoCorasick>,
    added: Vec<AddedToken>,
}

impl AddedTokenMatcher {
    pub(crate) fn new(added: impl IntoIterator<Item = AddedToken>) -> Result<AddedTokenMatcher, TextError> {
        let added: Vec<AddedToken> = added.into_iter().filter(|a| !a.spelling.is_empty()).collect();
        let automaton = if added.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(added.iter().map(|a| a.spelling.as_str()))
                .map_err(|e| TextError::vocab("added tokens", "spellings that a matcher can hold", e.to_string()))?;
            Some(built)
        };
        Ok(AddedTokenMatcher { automaton, added })
    }

    pub(crate) fn spellings(&self) -> impl Iterator<Item = &str> {
        self.added.iter().map(|a| a.spelling.as_str())
    }

    /// The first spelling found in `text`.
    pub(crate) fn find(&self, text: &str) -> Option<&str> {
        self.position(text).map(|(_, spelling)| spelling)
    }

    /// The place and spelling of the first one found in `text`.
    pub(crate) fn position(&self, text: &str) -> Option<(usize, &str)> {
        let found = self.automaton.as_ref()?.find(text)?;
        Some((found.start(), &self.added[found.pattern().as_usize()].spelling))
    }

    /// Cuts `text` at the added tokens. Empty stretches are left out.
    pub(crate) fn cut<'t>(&self, text: &'t str) -> Vec<Segment<'t>> {
        let mut parts = Vec::new();
        let Some(automaton) = &self.automaton else {
            if !text.is_empty() {
                parts.push(Segment::Text(text));
            }
            return parts;
        };
        let mut at = 0;
        for found in automaton.find_iter(text) {
            let added = &self.added[found.pattern().as_usize()];
            if found.start() < at || (added.single_word && !stands_alone(text, found.start(), found.end())) {
                continue;
            }
            let mut before = &text[at..found.start()];
            if added.left_strip {
                before = before.trim_end();
            }
            if !before.is_empty() {
                parts.push(Segment::Text(before));
            }
            parts.push(Segment::Token(added.id));
            at = found.end();
            if added.right_strip {
                let rest = &text[at..];
                at += rest.len() - rest.trim_start().len();
            }
        }
        if at < text.len() {
            parts.push(Segment::Text(&text[at..]));
        }
        parts
    }
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !word(text[..start].chars().next_back()) && !word(text[end..].chars().next())
}
