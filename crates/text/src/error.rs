//! Errors of vocabularies, templates, grammars and texts.

use thiserror::Error;

/// Everything that can be wrong with a vocabulary, a template or a text; each message is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file names a tokenizer model that is not implemented.
    #[error("tokenizer model {found:?} is not supported (supported: gpt2, llama)")]
    UnknownModel {
        /// The value of `tokenizer.ggml.model`.
        found: String,
    },
    /// The file names a pre-tokenizer whose rule is not known here; guessing would give other token
    /// ids.
    #[error("pre-tokenizer {found:?} is not known, and another rule would give other tokens")]
    UnknownPreTokenizer {
        /// The value of `tokenizer.ggml.pre`.
        found: String,
    },
    /// A field of the vocabulary is missing or does not fit the others.
    #[error("vocabulary: {field}: expected {expected}, got {got}")]
    BadVocab {
        /// The field, with an index where one element is meant.
        field: String,
        /// What would have been right.
        expected: String,
        /// What the file has.
        got: String,
    },
    /// A file of a Hugging Face folder is not the JSON that its format asks for.
    #[error("{file}: {what}")]
    BadJson {
        /// `tokenizer.json` or `tokenizer_config.json`.
        file: &'static str,
        /// The parser's words, with line and column.
        what: String,
    },
    /// A component of tokenizer.json that is not implemented; leaving it out would give other
    /// tokens.
    #[error("tokenizer.json: {part} {found:?} is not supported")]
    Unsupported {
        /// The place: `model`, `normalizer`, `pre_tokenizer`, `decoder`.
        part: &'static str,
        /// The type found there.
        found: String,
    },
    /// A regular expression of tokenizer.json that does not compile.
    #[error("tokenizer.json: pattern {pattern:?}: {what}")]
    BadPattern {
        /// The pattern, shortened.
        pattern: String,
        /// The compiler's words.
        what: String,
    },
    /// A regular expression of tokenizer.json gave up on this text.
    #[error("pre-tokenizer pattern failed at byte {at} of the text: {what}")]
    PatternFailed {
        /// Byte offset in the stretch of text.
        at: usize,
        /// The matcher's words.
        what: String,
    },
    /// The text holds something that the vocabulary has no token for, and there is no unknown
    /// token.
    #[error("no token for {what} at byte {at} of the text, and the vocabulary has no unknown token")]
    NotInVocabulary {
        /// The byte or character.
        what: String,
        /// Byte offset in the stretch of text.
        at: usize,
    },
    /// The chat template does not parse.
    #[error("chat template: line {line}: {what}")]
    TemplateSyntax {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The chat template refused the messages or failed on them.
    #[error("chat template: line {line}: {what}")]
    TemplateFailed {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// What is wrong: the words of `raise_exception` where the template called it.
        what: String,
    },
    /// The prompt was rendered without the tokenizer's control tokens and a message spells one of
    /// them, so that the two cannot be told apart.
    #[error(
        "message text spells the control token {token:?}, and the template was made without the tokenizer's control tokens"
    )]
    Unguarded {
        /// The spelling.
        token: String,
    },
    /// A grammar cannot be used, or came to where it cannot go on.
    #[error("grammar: {why}")]
    Grammar {
        /// What is wrong with it.
        why: String,
    },
    /// All 34 sentinel characters occur in the messages.
    #[error("the messages use every noncharacter, so that none is left to mark user text")]
    NoSentinel,
}

impl TextError {
    pub(crate) fn vocab(field: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Self {
        TextError::BadVocab { field: field.into(), expected: expected.into(), got: got.into() }
    }
}

/// The parser's words, with JSON's names of types in place of Rust's.
pub(crate) fn in_json_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some(at) = text.rfind(", expected ") else { return text };
    let (found, mut expected) = (&text[..at], text[at..].to_owned());
    for (rust, json) in
        [(" u32", " a whole number"), (" f64", " a number"), (" a sequence", " a list"), (" a map", " an object")]
    {
        expected = expected.replace(rust, json);
    }
    format!("{found}{expected}")
}

/// A text shortened for a message: at most 60 characters.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
