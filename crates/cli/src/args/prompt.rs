//! Flags that give a text.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Args)]
pub(crate) struct PromptArgs {
    /// The prompt [default: standard input]
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, `-` for standard input; with --prompt, it follows after a blank
    /// line. One newline at its end is dropped
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
}
