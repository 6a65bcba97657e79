//! What happens to a stretch of text before it is cut into pre-tokens.
//!
//! Vocabularies that write a space as `▁` are held with real spaces here, so that step is the other
//! way round: a literal `▁` becomes a space, which the reference cannot tell apart either.
//!
//! Unicode normal forms come from the crate that the reference library uses: its tables are of
//! Unicode 9, and newer ones would order some later marks otherwise and so give other tokens.

use std::borrow::Cow;

use unicode_normalization_alignments::UnicodeNormalization;

/// The character that SentencePiece writes for a space.
pub(crate) const SPACE_MARK: char = '▁';

/// Whether a space is put before a stretch of text, so that a word is the same token at the start
/// as after a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Prefix {
    #[default]
    Never,
    /// Before every stretch: at the start and after each added token (SentencePiece's dummy prefix,
    /// `Prepend`).
    Always,
    /// The same, unless the stretch begins with a space (`Metaspace`, "always").
    UnlessSpace,
    /// Only at the start of the whole text, unless it begins with a space (`Metaspace`, "first").
    First,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Strip { left: bool, right: bool },
    Replace { from: String, to: String },
    Prepend(String),
}

#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    pub(crate) steps: Vec<Step>,
    pub(crate) prefix: Prefix,
    /// `▁` in the text means a space.
    pub(crate) marks_are_spaces: bool,
}

impl Normalizer {
    pub(crate) fn apply<'t>(&self, text: &'t str, first: bool) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for step in &self.steps {
            if let Some(changed) = step.apply(&text) {
                text = Cow::Owned(changed);
            }
        }
        if self.marks_are_spaces && text.contains(SPACE_MARK) {
            text = Cow::Owned(text.replace(SPACE_MARK, " "));
        }
        let prefix = match self.prefix {
            Prefix::Never => false,
            Prefix::Always => true,
            Prefix::UnlessSpace => !text.starts_with(' '),
            Prefix::First => first && !text.starts_with(' '),
        };
        if prefix && !text.is_empty() {
            text.to_mut().insert(0, ' ');
        }
        text
    }
}

impl Step {
    /// The changed text; `None` when nothing changes.
    fn apply(&self, text: &str) -> Option<String> {
        match self {
            Step::Nfc | Step::Nfd | Step::Nfkc | Step::Nfkd if text.is_ascii() => None,
            Step::Nfc => Some(text.nfc().map(|(c, _)| c).collect()),
            Step::Nfd => Some(text.nfd().map(|(c, _)| c).collect()),
            Step::Nfkc => Some(text.nfkc().map(|(c, _)| c).collect()),
            Step::Nfkd => Some(text.nfkd().map(|(c, _)| c).collect()),
            Step::Lowercase => Some(text.chars().flat_map(char::to_lowercase).collect()),
            Step::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                Some(if *right { text.trim_end() } else { text }.to_owned())
            }
            Step::Replace { from, to } => text.contains(from.as_str()).then(|| text.replace(from.as_str(), to)),
            Step::Prepend(prefix) => (!text.is_empty()).then(|| format!("{prefix}{text}")),
        }
    }
}
