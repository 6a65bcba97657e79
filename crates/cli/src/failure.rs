//! How a command ends when it does not end well.

use std::io;

use selfspec_engine::EngineError;
use selfspec_hub::HubError;

use crate::output::Ui;

/// The flags do not fit together, or an input that they name is unusable: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Usage {
    message: String,
    hint: Option<String>,
}

/// Wrong usage, with what to do about it.
pub(crate) fn usage(message: impl Into<String>, hint: impl Into<Option<&'static str>>) -> anyhow::Error {
    Usage { message: message.into(), hint: hint.into().map(str::to_owned) }.into()
}

/// The user pressed Ctrl-C: exit code 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// The command has said everything already: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
pub(crate) struct Told;

/// Prints what went wrong and gives the exit code.
pub(crate) fn report(result: anyhow::Result<()>, ui: &Ui) -> u8 {
    let Err(error) = result else { return 0 };
    if error.is::<Told>() {
        return 1;
    }
    if error.is::<Interrupted>() {
        return 130;
    }
    // Whoever read our output has had enough of it.
    if error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)) {
        return 0;
    }
    // A cause that the message above it already contains is not said twice.
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    ui.error(&message);
    if let Some(hint) = hint(&error) {
        ui.hint(&hint);
    }
    if error.is::<Usage>() { 2 } else { 1 }
}

fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(usage) = error.downcast_ref::<Usage>() {
        return usage.hint.clone();
    }
    if let Some(error) = error.chain().find_map(|e| e.downcast_ref::<HubError>()) {
        return error.hint();
    }
    let error = error.chain().find_map(|e| e.downcast_ref::<EngineError>())?;
    Some(match error {
        EngineError::NoChatTemplate | EngineError::BadChatTemplate { .. } => {
            "--raw uses the prompt as plain text".to_owned()
        }
        EngineError::PromptTooLong { .. } => {
            "a longer context can be had with -c, up to what the model was made for".to_owned()
        }
        EngineError::NeverFits { .. } => "ask for fewer tokens with -n".to_owned(),
        _ => return None,
    })
}
