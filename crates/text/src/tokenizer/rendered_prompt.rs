//! A rendered chat in which the words of the template and those of the messages can be told apart.

/// A chat template's output, which still knows what the template wrote and what came from the
/// messages.
///
/// Before rendering, a noncharacter that no message contains (the sentinel) is put inside every
/// spelling of a control token in the messages. What matches a control token afterwards was written
/// by the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// With sentinels.
    pub(crate) marked: String,
    /// Without.
    pub(crate) text: String,
    pub(crate) sentinel: Option<char>,
    /// The strings that went into a template which knew no control tokens; empty otherwise.
    pub(crate) unguarded: Vec<String>,
}

impl RenderedPrompt {
    /// A prompt in which every spelling of a control token is meant as the token: text that no user
    /// wrote.
    pub fn trusted(text: impl Into<String>) -> RenderedPrompt {
        let text = text.into();
        RenderedPrompt { marked: text.clone(), text, sentinel: None, unguarded: Vec::new() }
    }

    pub(crate) fn new(marked: String, sentinel: Option<char>, unguarded: Vec<String>) -> RenderedPrompt {
        let text = match sentinel {
            Some(s) => marked.chars().filter(|&c| c != s).collect(),
            None => marked.clone(),
        };
        RenderedPrompt { marked, text, sentinel, unguarded }
    }

    /// The prompt as text.
    pub fn text(&self) -> &str {
        &self.text
    }
}
