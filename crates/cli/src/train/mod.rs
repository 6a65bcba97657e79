//! `selfspec train`: trains an exit head for a model, or the model itself for layer skip.

mod head;
mod layer_skip;

use selfspec_lab::training::{TrainingError, WorkFolder};

use crate::args::TrainCommand;
use crate::failure::{Interrupted, hinted, usage};
use crate::output::{Ui, bytes};

pub(crate) fn run(command: &TrainCommand, ui: &Ui) -> anyhow::Result<()> {
    match command {
        TrainCommand::Head(args) => head::run(args, ui),
        TrainCommand::LayerSkip(args) => layer_skip::run(args, ui),
    }
}

/// The error with its exit code and its hint.
fn explain(error: TrainingError, ui: &Ui) -> anyhow::Error {
    match error {
        TrainingError::Stopped { .. } => {
            ui.note(&format!("{error}; the same command goes on from there"));
            Interrupted.into()
        }
        TrainingError::Stale { .. } => {
            hinted(error.to_string(), "delete it, or name another working folder with --work")
        }
        TrainingError::WorkFolderInUse { .. } => usage(format!("--work {error}"), "--work names another folder"),
        TrainingError::Option { .. }
        | TrainingError::Text { .. }
        | TrainingError::NoTokenizer
        | TrainingError::NoChatTemplate
        | TrainingError::NoPrompts => usage(error.to_string(), None),
        TrainingError::Prompts(error) => error.into(),
        TrainingError::Engine(error) => error.into(),
        error => error.into(),
    }
}

/// The line about a working folder at the end of a run.
fn work_line(work: &WorkFolder) -> String {
    let (path, size) = (work.path().display(), bytes(work.bytes()));
    format!("{path} ({size}) can be deleted; with it, the same command does not start over")
}
