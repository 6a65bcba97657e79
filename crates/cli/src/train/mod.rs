//! `selfspec train`: trains what drafts for a model, on the model's own answers; or the model itself, on text.

mod answers;
mod documents;
mod head;
mod layer_skip;
mod layer_skip_report;
mod own_prompts;
mod states;

use std::path::Path;

use crate::args::TrainCommand;
use crate::failure::usage;
use crate::output::Ui;

pub(crate) fn run(command: &TrainCommand, ui: &Ui) -> anyhow::Result<()> {
    match command {
        TrainCommand::Head(args) => head::run(args, ui),
        TrainCommand::LayerSkip(args) => layer_skip::run(args, ui),
    }
}

/// Refuses, before hours of work, an `--out` that cannot be written: in a folder that is not there, or a folder where a `file` is wanted.
fn check_out(out: &Path, file: bool) -> anyhow::Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(usage(format!("--out {}: there is no folder {}", out.display(), folder.display()), None));
    }
    if file && out.is_dir() {
        return Err(usage(format!("--out {}: that is a folder, and a file is to be written", out.display()), None));
    }
    Ok(())
}
