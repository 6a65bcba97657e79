//! `selfspec train layer-skip`: a whole model is trained on text so that its first layers alone can draft, and judged before and after.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use selfspec_engine::{DraftSetup, EngineOptions, ExitHeadSource, Loaded};
use selfspec_train::{
    BackboneEvent, BackboneOptions, BackboneRun, BackboneStep, BackboneTrainer, Curriculum, TokenSpans,
    TrainingSchedule,
};

use super::answers::minutes;
use super::documents;
use super::layer_skip_report::{risen, table};
use super::work::{GO_ON, WorkFolder};
use crate::args::layer_skip::{self, TrainLayerSkipArgs};
use crate::failure::{Interrupted, usage};
use crate::output::{self, Ui};
use crate::progress::Steps;
use crate::signals::Pausing;
use crate::{model, out_path};

/// How often training says how far it is.
const SAY: Duration = Duration::from_secs(30);
/// How often its state is saved.
const SAVE: Duration = Duration::from_secs(120);
/// Bytes that the shards' gradients may take together.
const GRADIENTS: u64 = 2 << 30;
/// Most shards of a batch.
const MOST_SHARDS: u64 = 8;

pub(crate) fn run(args: &TrainLayerSkipArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.data.text.is_empty() && args.data.prompts.is_empty() {
        let hint =
            "--text FILE names plain text or JSONL lines with `text`, --prompts FILE has the model answer prompts";
        return Err(usage("no text to train on", hint));
    }
    let path = model::locate(&args.model.model, ui)?;
    let out = output_path(args, &path)?;
    let work = WorkFolder::open(args.work.as_deref(), &out)?;
    let setup = DraftSetup { exit_head: ExitHeadSource::Off, untuned: true, ..DraftSetup::default() };
    let loaded =
        Loaded::open_with(&path, args.threads, &setup).with_context(|| format!("cannot load {}", path.display()))?;
    let options = options(args, &loaded)?;
    let spans = spans(args, &loaded, &work, ui)?;
    let threads = EngineOptions { threads: args.threads, ..EngineOptions::default() }.resolved_threads();
    let tokens = spans.tokens();
    let mut trainer = BackboneTrainer::new(loaded.model(), &path, spans, options, threads)?;
    drop(loaded); // training has the weights as floats
    ui.note(&format!(
        "{tokens} tokens to train on, {} steps; {} numbers, which take {} beside what a batch takes",
        trainer.steps().1,
        trainer.parameters(),
        output::bytes(trainer.state_bytes() as u64)
    ));

    let before = trainer.perplexities(false, threads);
    ui.note(&format!("perplexity before: {:.3} after all layers", before.full().perplexity));
    let checkpoint = work.file("checkpoint");
    if checkpoint.exists() {
        trainer.resume(&checkpoint, threads).map_err(|e| work.remedy(e))?;
        let (step, steps) = trainer.steps();
        ui.note(&format!("going on from step {step} of {steps}"));
    }
    if !train(&mut trainer, &checkpoint, threads, ui)? {
        return Err(Interrupted.into());
    }
    let after = trainer.perplexities(true, threads);
    output::print(&table(&before, &after))?;

    let refused = risen(&before, &after, args.regression.tolerance);
    if refused.is_none() || args.regression.keep {
        for file in trainer.write(&out)? {
            ui.detail(&format!("wrote {}", file.display()));
        }
    }
    match refused {
        None => {
            ui.note(&work.done());
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

fn options(args: &TrainLayerSkipArgs, loaded: &Loaded) -> anyhow::Result<BackboneOptions> {
    let (n, skipping, course) = (loaded.info().n_layers, &args.skipping, &args.course);
    let mut exits = skipping.exits.clone();
    if let Some(exit) = exits.iter().find(|exit| **exit >= n) {
        return Err(usage(
            format!("--exits {exit}: the model has {n} layers, and an exit leaves at least one out"),
            None,
        ));
    }
    if exits.is_empty() {
        exits = [n / 4, n / 2, n - n / 4].into_iter().filter(|exit| (1..n).contains(exit)).collect();
    }
    exits.sort_unstable();
    exits.dedup();
    let curriculum = match skipping.curriculum {
        layer_skip::Curriculum::Rotate => Curriculum::Rotate,
        layer_skip::Curriculum::Gradual => Curriculum::Gradual,
        layer_skip::Curriculum::All => Curriculum::All,
    };
    let defaults = BackboneOptions::default();
    Ok(BackboneOptions {
        layer_dropout: skipping.layer_dropout,
        exits,
        exit_weight: skipping.exit_weight,
        curriculum,
        epochs: f64::from(course.epochs),
        steps: course.steps,
        batch_tokens: course.batch,
        shards: (GRADIENTS / (4 * loaded.info().parameters.max(1))).clamp(1, MOST_SHARDS) as usize,
        schedule: TrainingSchedule { learning_rate: course.rate, ..defaults.schedule },
        seed: course.seed,
    })
}

/// The texts, cut into spans.
fn spans(
    args: &TrainLayerSkipArgs,
    loaded: &std::sync::Arc<Loaded>,
    work: &WorkFolder,
    ui: &Ui,
) -> anyhow::Result<TokenSpans> {
    let (data, regression) = (&args.data, &args.regression);
    if data.span > loaded.info().context {
        let (span, context) = (data.span, loaded.info().context);
        return Err(usage(format!("--span {span}: the model was made for {context} positions"), None));
    }
    let mut train = documents::read(&data.text, loaded)?;
    let answers = work.file("answers.jsonl");
    train.extend(documents::answered(&data.prompts, loaded, args.threads, data.max_tokens, &answers, ui)?);
    if regression.eval_text.is_empty() {
        return Ok(TokenSpans::cut(&train, data.span, regression.held_out, args.course.seed)?);
    }
    Ok(TokenSpans::apart(&train, &documents::read(&regression.eval_text, loaded)?, data.span)?)
}

/// Trains to the end; false if the user ended it before.
fn train(trainer: &mut BackboneTrainer, checkpoint: &Path, threads: usize, ui: &Ui) -> anyhow::Result<bool> {
    let run = BackboneRun { threads, checkpoint: Some(checkpoint), save_every: SAVE };
    let (done, of) = trainer.steps();
    let bar = Steps::new(ui, "training", of as u64);
    bar.set(done as u64);
    let (mut said, mut skipped, mut means) = (Instant::now(), 0, Means::default());
    let pausing = Pausing::new();
    let mut tell = |event: &BackboneEvent| {
        match event {
            BackboneEvent::Step(step) => {
                bar.step();
                skipped += usize::from(step.skipped);
                means.take(step);
                if said.elapsed() >= SAY || step.step == step.steps {
                    said = Instant::now();
                    ui.note(&means.line(step, skipped));
                    means = Means::default();
                }
            }
            BackboneEvent::Saved { step, path } => ui.detail(&format!("step {step} is saved in {}", path.display())),
        }
        if pausing.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let finished = trainer.run(&run, &mut tell)?;
    if !finished {
        let (step, steps) = trainer.steps();
        ui.note(&format!("stopped after step {step} of {steps}; {GO_ON}"));
    }
    Ok(finished)
}

/// Losses since they were last told, by number of layers.
#[derive(Default)]
struct Means(BTreeMap<usize, (f64, usize)>);

impl Means {
    fn take(&mut self, step: &BackboneStep) {
        for (layers, loss) in step.exits.iter().copied().chain([(usize::MAX, step.loss)]).filter(|l| l.1.is_finite()) {
            let mean = self.0.entry(layers).or_default();
            *mean = (mean.0 + loss, mean.1 + 1);
        }
    }

    fn line(&self, step: &BackboneStep, skipped: usize) -> String {
        let mut line = format!("step {} of {}: loss", step.step, step.steps);
        for (layers, (sum, count)) in self.0.iter().rev() {
            let mean = sum / *count as f64;
            line += &match layers {
                &usize::MAX => format!(" {mean:.3}"),
                layers => format!(", after {layers} layers {mean:.3}"),
            };
        }
        line += &format!("; {:.0} tokens a second, {} left", step.tokens_per_second, minutes(step.seconds_left));
        if skipped > 0 {
            line += &format!(" ({skipped} batches skipped: their loss was not finite)");
        }
        line
    }
}
