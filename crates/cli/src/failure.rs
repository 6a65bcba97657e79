//! How a command fails: messages, hints and exit codes.

use std::io;

use selfspec::Error;
use selfspec_engine::EngineError;
use selfspec_hub::HubError;
use selfspec_lab::LabError;
use selfspec_lab::prompts::PromptsError;

use crate::args::Command;
use crate::output::Ui;

/// Wrong usage: flags that contradict each other, or an unusable input. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Usage {
    message: String,
    hint: Option<String>,
}

/// Wrong usage, with a hint.
pub(crate) fn usage(message: impl Into<String>, hint: impl Into<Option<&'static str>>) -> anyhow::Error {
    Usage { message: message.into(), hint: hint.into().map(str::to_owned) }.into()
}

/// A failure with a hint of its own. Exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Hinted {
    message: String,
    hint: String,
}

/// A failure with a hint.
pub(crate) fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { message: message.into(), hint: hint.into() }.into()
}

/// A prompt that leaves no room, with a hint at `-c` if the model allows a longer context.
pub(crate) fn too_long(error: anyhow::Error, most: usize) -> anyhow::Error {
    match engine_error(&error) {
        Some(EngineError::PromptTooLong { context, .. }) if *context < most => {
            hinted(error.to_string(), format!("-c gives a longer context, up to {most}"))
        }
        _ => error,
    }
}

/// The user pressed Ctrl-C. Exit code 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// The command has printed why it fails. Exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
pub(crate) struct AlreadyReported;

/// Prints the error and its hint, and returns the exit code.
pub(crate) fn report(result: anyhow::Result<()>, command: &Command, ui: &Ui) -> u8 {
    let Err(error) = result else { return 0 };
    if error.is::<AlreadyReported>() {
        return 1;
    }
    if error.is::<Interrupted>() {
        return 130;
    }
    // The reader of our output has closed it.
    if error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)) {
        return 0;
    }
    let message = error.chain().map(ToString::to_string).fold(String::new(), join);
    ui.error(&message);
    if let Some(hint) = hint(&error, command) {
        ui.hint(&hint);
    }
    if error.is::<Usage>() || is_unusable_input(&error) { 2 } else { 1 }
}

/// Whether a file that the user gave is at fault, which counts as wrong usage.
fn is_unusable_input(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<PromptsError>(), Some(PromptsError::Line { .. } | PromptsError::Empty { .. }))
}

/// An error of the lab with the flag at fault: `flag` for an exit layer, an option's own for the
/// option.
pub(crate) fn of_flag(flag: &str, error: LabError) -> anyhow::Error {
    match error {
        LabError::ExitLayer { source: error } => anyhow::anyhow!("{flag} {}: {error}", error.exit),
        LabError::Option { name, why } => anyhow::anyhow!("--{name}: {why}"),
        error => error.into(),
    }
}

/// The engine's error in a chain of causes.
pub(crate) fn engine_error(error: &anyhow::Error) -> Option<&EngineError> {
    error.chain().find_map(|e| {
        let lab = || e.downcast_ref::<LabError>().and_then(LabError::engine);
        let library = || e.downcast_ref::<Error>().and_then(Error::engine);
        e.downcast_ref::<EngineError>().or_else(lab).or_else(library)
    })
}

/// The hub's error in a chain of causes.
fn hub_error(error: &anyhow::Error) -> Option<&HubError> {
    error.chain().find_map(|e| match e.downcast_ref::<Error>() {
        Some(Error::Hub(error)) => Some(error),
        _ => e.downcast_ref::<HubError>(),
    })
}

/// A message and its cause. A cause that the message contains is left out, and so is a path that
/// the cause repeats at its beginning.
fn join(message: String, cause: String) -> String {
    if message.is_empty() {
        return cause;
    }
    if message.contains(&cause) {
        return message;
    }
    let ends = cause.match_indices(": ").map(|(at, _)| at);
    let repeated = ends.filter(|at| message.ends_with(&cause[..*at])).last();
    let news = repeated.map_or(cause.as_str(), |at| &cause[at + 2..]);
    format!("{message}: {news}")
}

fn hint(error: &anyhow::Error, command: &Command) -> Option<String> {
    if let Some(usage) = error.downcast_ref::<Usage>() {
        return usage.hint.clone();
    }
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        return Some(hinted.hint.clone());
    }
    if let Some(error) = hub_error(error) {
        return prompt_hint(error, command).or_else(|| error.hint());
    }
    let error = engine_error(error)?;
    Some(match error {
        EngineError::NoChatTemplate | EngineError::BadChatTemplate { .. } => {
            "--raw uses the prompt as plain text".to_owned()
        }
        EngineError::PromptTooLong { .. } => "the model takes no longer prompts".to_owned(),
        EngineError::Tuning { .. } => "`selfspec tune` writes it again, --no-tuning ignores it".to_owned(),
        EngineError::NeverFits { .. } => "ask for fewer tokens with -n".to_owned(),
        _ => return None,
    })
}

/// A hint if a prompt seems to stand in the model's place.
fn prompt_hint(error: &HubError, command: &Command) -> Option<String> {
    let verb = match command {
        Command::Run(_) => "run",
        Command::Tokenize(_) => "tokenize",
        _ => return None,
    };
    let give = format!("a prompt is given with -p: selfspec {verb} MODEL -p TEXT");
    match error {
        HubError::UnknownName { name } if name.contains(char::is_whitespace) => Some(give),
        HubError::NoSuchPath { path } if path.to_string_lossy().contains(char::is_whitespace) => Some(give),
        HubError::UnknownName { .. } => Some(format!("{}; {give}", error.hint()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cause_repeats_is_said_once() {
        let join = |a: &str, b: &str| join(a.to_owned(), b.to_owned());
        assert_eq!(join("", "a"), "a");
        assert_eq!(
            join("cannot read a: b.gguf", "a: b.gguf: too short: 4 bytes"),
            "cannot read a: b.gguf: too short: 4 bytes"
        );
        assert_eq!(join("cannot load x", "no: such tensor"), "cannot load x: no: such tensor");
        assert_eq!(join("template: it says no", "it says no"), "template: it says no");
    }
}
