//! `selfspec train head`.

use selfspec_lab::training::{HeadTrainingOptions, WorkFolder, train_head};

use super::{explain, work_line};
use crate::args::TrainHeadArgs;
use crate::output::{self, Ui};
use crate::progress::LabBars;
use crate::{model, out_path};

pub(crate) fn run(args: &TrainHeadArgs, ui: &Ui) -> anyhow::Result<()> {
    out_path::check("--out", &args.out, true)?;
    let work = WorkFolder::open(args.work.as_deref(), &args.out).map_err(|e| explain(e, ui))?;
    let path = model::locate(&args.model.model, ui)?;
    let head = train_head(&path, &work, &options(args), &LabBars::new(ui)).map_err(|e| explain(e, ui))?;
    output::print(&head.table())?;
    if let Some(warning) = head.warning() {
        ui.note(&warning);
    }
    ui.note(&work_line(&work));
    ui.note(&format!("{} is ready: selfspec run {} --exit-head {0}", args.out.display(), args.model.model));
    Ok(())
}

fn options(args: &TrainHeadArgs) -> HeadTrainingOptions {
    let (data, head, training) = (&args.data, &args.head, &args.training);
    HeadTrainingOptions {
        model: args.model.model.clone(),
        out: args.out.clone(),
        command: std::iter::once("selfspec".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
        prompts: data.prompts.clone(),
        limit: data.limit,
        own_prompts: data.own_prompts,
        max_tokens: data.max_tokens,
        max_length: data.max_length,
        sampled: data.sampled,
        plain: data.plain,
        head_layer: head.head_layer,
        features: head.features.as_ref().map(|features| features.0.clone()),
        ffn: head.ffn,
        draft_vocab: head.draft_vocab,
        bf16: head.bf16,
        epochs: training.epochs,
        batch: training.batch,
        rate: training.rate,
        from: training.from.clone(),
        rollout: training.rollout,
        rollout_from: training.rollout_from,
        seed: training.seed,
        threads: args.threads,
    }
}
