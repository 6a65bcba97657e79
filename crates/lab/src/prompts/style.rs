//! How prompts are given to the model.

use selfspec_engine::{ModelInfo, Prompt};
use selfspec_text::Message;

/// How prompts are given to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptStyle {
    /// As messages, through the model's chat template.
    Chat,
    /// As they are.
    Plain,
}

impl PromptStyle {
    /// The style for a model: plain text if `raw` asks for it or the model has no chat template.
    pub fn of(raw: bool, info: &ModelInfo) -> Self {
        if raw || !info.chat_template { PromptStyle::Plain } else { PromptStyle::Chat }
    }

    /// One user message after the system message, or plain text, which takes no system message.
    pub fn prompt(self, system: Option<&str>, text: &str) -> Prompt {
        match self {
            PromptStyle::Plain => Prompt::Text(text.to_owned()),
            PromptStyle::Chat => {
                let system = system.map(|s| Message::new("system", s));
                Prompt::Chat(system.into_iter().chain([Message::new("user", text)]).collect())
            }
        }
    }
}
