//! One prompt of a set.

use selfspec_engine::Prompt;
use selfspec_text::Message;

use super::style::PromptStyle;

/// One prompt of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptCase {
    /// The line of its file, from 1; 0 for a prompt that is from no file.
    pub line: usize,
    /// Kind of task; `other` if the line names none.
    pub category: String,
    pub(super) input: PromptInput,
}

/// What a line gives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PromptInput {
    Text(String),
    Messages(Vec<(String, String)>), // (role, content)
}

impl PromptCase {
    /// A prompt that is not from a file.
    pub fn of_text(category: &str, text: String) -> Self {
        PromptCase { line: 0, category: category.to_owned(), input: PromptInput::Text(text) }
    }

    /// The prompt in a style. Messages as plain text are their contents, a blank line between them.
    pub fn prompt(&self, style: PromptStyle) -> Prompt {
        match (&self.input, style) {
            (PromptInput::Text(text), _) => style.prompt(None, text),
            (PromptInput::Messages(messages), PromptStyle::Chat) => {
                Prompt::Chat(messages.iter().map(|(role, content)| Message::new(role, content)).collect())
            }
            (PromptInput::Messages(_), PromptStyle::Plain) => Prompt::Text(self.plain_text()),
        }
    }

    /// The prompt as plain text: of messages their contents, a blank line between them.
    pub fn plain_text(&self) -> String {
        match &self.input {
            PromptInput::Text(text) => text.clone(),
            PromptInput::Messages(messages) => {
                messages.iter().map(|(_, content)| content.as_str()).collect::<Vec<_>>().join("\n\n")
            }
        }
    }

    /// Role and content of each message; a text is the user's.
    pub fn messages(&self) -> Vec<(&str, &str)> {
        match &self.input {
            PromptInput::Text(text) => vec![("user", text)],
            PromptInput::Messages(messages) => {
                messages.iter().map(|(role, content)| (role.as_str(), content.as_str())).collect()
            }
        }
    }

    /// The text, if the prompt is one and not a list of messages.
    pub fn text(&self) -> Option<&str> {
        match &self.input {
            PromptInput::Text(text) => Some(text),
            PromptInput::Messages(_) => None,
        }
    }
}
