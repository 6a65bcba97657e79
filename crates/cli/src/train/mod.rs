//! `selfspec train`: trains what drafts for a model, on the model's own answers; or the model itself, on text.

mod answers;
mod documents;
mod head;
mod layer_skip;
mod layer_skip_report;
mod own_prompts;
mod states;
mod work;

use crate::args::TrainCommand;
use crate::output::Ui;

pub(crate) fn run(command: &TrainCommand, ui: &Ui) -> anyhow::Result<()> {
    match command {
        TrainCommand::Head(args) => head::run(args, ui),
        TrainCommand::LayerSkip(args) => layer_skip::run(args, ui),
    }
}
