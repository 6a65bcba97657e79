//! `selfspec train layer-skip`.

use std::path::{Path, PathBuf};

use selfspec_lab::training::{LayerSkipOptions, LayerSkipReport, WorkFolder, train_layer_skip};
use selfspec_train::Curriculum;

use super::{explain, work_line};
use crate::args::layer_skip::{self, TrainLayerSkipArgs};
use crate::failure::usage;
use crate::output::{self, Ui};
use crate::progress::LabBars;
use crate::{model, out_path};

pub(crate) fn run(args: &TrainLayerSkipArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.data.text.is_empty() && args.data.prompts.is_empty() {
        let hint =
            "--text FILE names plain text or JSONL lines with `text`, --prompts FILE has the model answer prompts";
        return Err(usage("no text to train on", hint));
    }
    let path = model::locate(&args.model.model, ui)?;
    let out = output_path(args, &path)?;
    let work = WorkFolder::open(args.work.as_deref(), &out).map_err(|e| explain(e, ui))?;
    let report = train_layer_skip(&path, &work, &options(args, &out), &LabBars::new(ui));
    let report = report.map_err(|e| explain(e, ui))?;
    output::print(&table(&report))?;
    for file in &report.files {
        ui.detail(&format!("wrote {}", file.display()));
    }
    match &report.refusal {
        None => {
            ui.note(&work_line(&work));
            ui.note(&format!("{} is ready: selfspec tune {0}", out.display()));
            Ok(())
        }
        Some(why) if args.regression.keep => anyhow::bail!("{why}; {} is written all the same", out.display()),
        Some(why) => anyhow::bail!(
            "{why}; the model is not written (--keep writes it), and the checkpoint stays in {}",
            work.path().display()
        ),
    }
}

/// Where the model is written, which must not be where it is read.
fn output_path(args: &TrainLayerSkipArgs, model: &Path) -> anyhow::Result<PathBuf> {
    let name = if model.is_dir() { "layer-skip" } else { "layer-skip.gguf" };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(name));
    if let (Ok(from), Ok(to)) = (model.canonicalize(), out.canonicalize())
        && from == to
    {
        return Err(usage(format!("--out {}: that is the model itself", out.display()), None));
    }
    out_path::check("--out", &out, !model.is_dir())?;
    Ok(out)
}

fn options(args: &TrainLayerSkipArgs, out: &Path) -> LayerSkipOptions {
    let (data, skipping, course, regression) = (&args.data, &args.skipping, &args.course, &args.regression);
    LayerSkipOptions {
        out: out.to_owned(),
        text: data.text.clone(),
        prompts: data.prompts.clone(),
        max_tokens: data.max_tokens,
        span: data.span,
        layer_dropout: skipping.layer_dropout,
        exits: skipping.exits.clone(),
        exit_weight: skipping.exit_weight,
        curriculum: match skipping.curriculum {
            layer_skip::Curriculum::Rotate => Curriculum::Rotate,
            layer_skip::Curriculum::Gradual => Curriculum::Gradual,
            layer_skip::Curriculum::All => Curriculum::All,
        },
        epochs: course.epochs,
        steps: course.steps,
        batch: course.batch,
        rate: course.rate,
        seed: course.seed,
        held_out: regression.held_out,
        eval_text: regression.eval_text.clone(),
        tolerance: regression.tolerance,
        keep: regression.keep,
        threads: args.threads,
    }
}

/// The table of perplexities before and after.
fn table(report: &LayerSkipReport) -> String {
    let title = ["held-out text", "perplexity before", "after", "change", "guess of all layers before", "after"];
    let mut rows = vec![title.map(str::to_owned).to_vec()];
    let last = report.before.readings.len() - 1;
    for (i, (old, new)) in report.before.readings.iter().zip(&report.after.readings).enumerate() {
        let share = |agreement: f64| if i == last { String::new() } else { format!("{agreement:.3}") };
        rows.push(vec![
            if i == last { format!("all {} layers", old.layers) } else { format!("exit after {}", old.layers) },
            format!("{:.3}", old.perplexity),
            format!("{:.3}", new.perplexity),
            format!("{:+.1}%", (new.perplexity / old.perplexity - 1.0) * 100.0),
            share(old.agreement),
            share(new.agreement),
        ]);
    }
    format!("{}\n{} tokens\n", output::table(&rows, &[1, 2, 3, 4, 5]), report.before.tokens)
}

#[cfg(test)]
mod tests {
    use selfspec_train::{ExitPerplexity, Perplexities};

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_reading() {
        let of = |full| {
            let reading = |layers, perplexity, agreement| ExitPerplexity { layers, perplexity, agreement };
            Perplexities { readings: vec![reading(4, 30.0, 0.5), reading(8, full, 1.0)], tokens: 100 }
        };
        let table = table(&LayerSkipReport { before: of(10.0), after: of(9.5), refusal: None, files: Vec::new() });
        assert!(table.contains("exit after 4") && table.contains("all 8 layers") && table.contains("-5.0%"), "{table}");
    }
}
