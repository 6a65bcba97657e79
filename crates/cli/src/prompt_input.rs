//! A prompt from flags, a file or standard input.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::Context;

use crate::args::PromptArgs;
use crate::failure::usage;

/// The prompt that the flags name, or the text of standard input if it is not a terminal. Beside a
/// prompt in the flags, standard input is read only if they name it too: it may be a pipe that
/// never closes, or belong to the loop of a script.
pub(crate) fn read_prompt(args: &PromptArgs) -> anyhow::Result<Option<String>> {
    match (&args.prompt, &args.prompt_file) {
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(path)) => Ok(Some(read_text(path)?)),
        (Some(text), Some(path)) => match read_text(path)? {
            rest if rest.is_empty() => Ok(Some(text.clone())),
            rest => Ok(Some(format!("{text}\n\n{rest}"))),
        },
        (None, None) if io::stdin().is_terminal() => Ok(None),
        (None, None) => match read_text(Path::new("-"))? {
            text if text.is_empty() => {
                Err(usage("no prompt: standard input is empty", "give one with -p or --prompt-file"))
            }
            text => Ok(Some(text)),
        },
    }
}

/// The text of a file, `-` for standard input.
fn read_text(path: &Path) -> anyhow::Result<String> {
    let text = if path == Path::new("-") {
        read_stdin()?
    } else {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        String::from_utf8(bytes).map_err(|e| not_text(&path.display().to_string(), e.utf8_error()))?
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text); // a byte order mark is no part of the text
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    String::from_utf8(bytes).map_err(|e| not_text("standard input", e.utf8_error()))
}

fn not_text(what: &str, error: std::str::Utf8Error) -> anyhow::Error {
    anyhow::anyhow!("{what} is not UTF-8: bad byte at offset {}", error.valid_up_to())
}
