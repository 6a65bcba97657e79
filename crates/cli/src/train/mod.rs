//! `selfspec train`: trains what drafts for a model, on the model's own answers.

mod answers;
mod head;
mod own_prompts;
mod states;

use crate::args::TrainCommand;
use crate::output::Ui;

pub(crate) fn run(command: &TrainCommand, ui: &Ui) -> anyhow::Result<()> {
    match command {
        TrainCommand::Head(args) => head::run(args, ui),
    }
}
