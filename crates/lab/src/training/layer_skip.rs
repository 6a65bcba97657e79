//! Trains a whole model on text so that its first layers alone can draft, and judges it before and
//! after.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use selfspec_engine::{DraftSetup, EngineOptions, ExitHeadSource, LoadedModel};
use selfspec_train::{
    BackboneEvent, BackboneOptions, BackboneRun, BackboneStep, BackboneTrainer, Curriculum, Perplexities, TokenSpans,
    TrainingSchedule,
};

use super::control::{ReportTimer, TrainingControl, TrainingNote, time_words};
use super::documents;
use super::error::{TrainingError, TrainingUnit};
use super::work_folder::WorkFolder;
use crate::progress::Stage;

/// How often the training's state is saved.
const SAVE: Duration = Duration::from_secs(120);
/// Bytes that the shards' gradients may take together.
const GRADIENTS: u64 = 2 << 30;
/// Most shards of a batch.
const MOST_SHARDS: u64 = 8;

/// How a model is trained for layer skip.
#[derive(Debug, Clone)]
pub struct LayerSkipOptions {
    /// Where the trained model is written.
    pub out: PathBuf,
    /// Files of text to train on.
    pub text: Vec<PathBuf>,
    /// Files of prompts that the model answers, to train on both.
    pub prompts: Vec<PathBuf>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Tokens of a span: the texts are cut into spans.
    pub span: usize,
    /// Probability with which the last layer is left out for a span, from 0 to 0.5.
    pub layer_dropout: f32,
    /// Numbers of layers after which an exit is trained; empty: a quarter, a half and three
    /// quarters of the depth. Shape: (exit).
    pub exits: Vec<usize>,
    /// Weight of the exits' losses together, against 1 for the loss after all layers.
    pub exit_weight: f32,
    /// In which steps which exits count.
    pub curriculum: Curriculum,
    /// Times that every span is seen.
    pub epochs: f32,
    /// Most steps, if fewer than the epochs have.
    pub steps: Option<usize>,
    /// Tokens in a batch, about.
    pub batch: usize,
    /// Highest learning rate.
    pub rate: f32,
    /// Decides the spans that are held out, the order of the others, the layers that are left out,
    /// and the turns of the exits.
    pub seed: u64,
    /// Spans that are held out to judge by, at most a tenth of them.
    pub held_out: usize,
    /// Files of text to judge by instead.
    pub eval_text: Vec<PathBuf>,
    /// By how many percent the full pass's perplexity may rise.
    pub tolerance: f32,
    /// Write the model even if its perplexity rose beyond that.
    pub keep: bool,
    /// Threads that compute. `None`: one for each core.
    pub threads: Option<usize>,
}

/// A training for layer skip that came to its end.
#[derive(Debug, Clone)]
pub struct LayerSkipReport {
    /// Perplexity of the held-out text before.
    pub before: Perplexities,
    /// The same after.
    pub after: Perplexities,
    /// Why the result is not good, if it is not.
    pub refusal: Option<String>,
    /// The files written; none if the result is refused and not kept.
    pub files: Vec<PathBuf>,
}

/// Trains the model at `path`, judges it, and writes it if it is good.
///
/// # Errors
/// The model cannot be loaded or trained, an option does not fit it, a text cannot be used, the
/// working folder has files of another run, or the caller stopped it.
pub fn train_layer_skip(
    path: &Path,
    work: &WorkFolder,
    options: &LayerSkipOptions,
    control: &dyn TrainingControl,
) -> Result<LayerSkipReport, TrainingError> {
    let setup = DraftSetup { exit_head: ExitHeadSource::Off, untuned: true, ..DraftSetup::default() };
    let loaded = LoadedModel::open_with(path, options.threads, &setup);
    let loaded = loaded.map_err(|source| TrainingError::Load { path: path.to_owned(), source: Box::new(source) })?;
    let backbone = backbone_options(options, &loaded)?;
    let spans = spans(options, &loaded, work, control)?;
    let threads = EngineOptions { threads: options.threads, ..EngineOptions::default() }.resolved_threads();
    let tokens = spans.tokens();
    let mut trainer = BackboneTrainer::new(loaded.model(), path, spans, backbone, threads)?;
    drop(loaded); // training has the weights as floats
    control.training_note(&TrainingNote::Line(format!(
        "{tokens} tokens to train on, {} steps; {} numbers, which take {:.1} MiB beside what a batch takes",
        trainer.steps().1,
        trainer.parameters(),
        trainer.state_bytes() as f64 / f64::from(1 << 20)
    )));

    let before = trainer.perplexities(false, threads);
    let line = format!("perplexity before: {:.3} after all layers", before.full().perplexity);
    control.training_note(&TrainingNote::Line(line));
    let checkpoint = work.file("checkpoint");
    if checkpoint.exists() {
        trainer.resume(&checkpoint, threads).map_err(|e| work.blame(e))?;
        let (step, steps) = trainer.steps();
        control.training_note(&TrainingNote::Resumed { step, steps });
    }
    train(&mut trainer, &checkpoint, threads, control)?;
    let after = trainer.perplexities(true, threads);
    let refusal = risen(&before, &after, options.tolerance);
    let files = if refusal.is_none() || options.keep { trainer.write(&options.out)? } else { Vec::new() };
    Ok(LayerSkipReport { before, after, refusal, files })
}

fn backbone_options(options: &LayerSkipOptions, loaded: &LoadedModel) -> Result<BackboneOptions, TrainingError> {
    let n = loaded.info().n_layers;
    let mut exits = options.exits.clone();
    if let Some(exit) = exits.iter().find(|exit| **exit >= n) {
        let why = format!("the model has {n} layers, and an exit leaves at least one out");
        return Err(TrainingError::Option { option: "exits", value: *exit, why });
    }
    if exits.is_empty() {
        exits = [n / 4, n / 2, n - n / 4].into_iter().filter(|exit| (1..n).contains(exit)).collect();
    }
    exits.sort_unstable();
    exits.dedup();
    let defaults = BackboneOptions::default();
    Ok(BackboneOptions {
        layer_dropout: options.layer_dropout,
        exits,
        exit_weight: options.exit_weight,
        curriculum: options.curriculum,
        epochs: f64::from(options.epochs),
        steps: options.steps,
        batch_tokens: options.batch,
        shards: (GRADIENTS / (4 * loaded.info().parameters.max(1))).clamp(1, MOST_SHARDS) as usize,
        schedule: TrainingSchedule { learning_rate: options.rate, ..defaults.schedule },
        seed: options.seed,
    })
}

/// The texts, cut into spans.
fn spans(
    options: &LayerSkipOptions,
    loaded: &Arc<LoadedModel>,
    work: &WorkFolder,
    control: &dyn TrainingControl,
) -> Result<TokenSpans, TrainingError> {
    let context = loaded.info().context;
    if options.span > context {
        let why = format!("the model was made for {context} positions");
        return Err(TrainingError::Option { option: "span", value: options.span, why });
    }
    let mut train = documents::read(&options.text, loaded)?;
    let answers = work.file("answers.jsonl");
    let (threads, max_tokens) = (options.threads, options.max_tokens);
    train.extend(documents::answered(&options.prompts, loaded, threads, max_tokens, &answers, control)?);
    if options.eval_text.is_empty() {
        return Ok(TokenSpans::cut(&train, options.span, options.held_out, options.seed)?);
    }
    Ok(TokenSpans::apart(&train, &documents::read(&options.eval_text, loaded)?, options.span)?)
}

/// Trains to the end.
fn train(
    trainer: &mut BackboneTrainer,
    checkpoint: &Path,
    threads: usize,
    control: &dyn TrainingControl,
) -> Result<(), TrainingError> {
    let run = BackboneRun { threads, checkpoint: Some(checkpoint), save_every: SAVE };
    let (done, of) = trainer.steps();
    let bar = Stage::begin(control, "training", of);
    (0..done).for_each(|_| bar.step());
    let (mut timer, mut skipped, mut means) = (ReportTimer::start(), 0, MeanLosses::default());
    let stopped = control.stop_signal();
    let mut on_event = |event: &BackboneEvent| {
        match event {
            BackboneEvent::Step(step) => {
                bar.step();
                skipped += usize::from(step.skipped);
                means.add(step);
                if timer.is_due() || step.step == step.steps {
                    control.training_note(&TrainingNote::Line(means.line(step, skipped)));
                    means = MeanLosses::default();
                }
            }
            BackboneEvent::Saved { step, path } => {
                control.training_note(&TrainingNote::Saved { step: *step, path: path.clone() });
            }
        }
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if trainer.run(&run, &mut on_event)? {
        return Ok(());
    }
    let (done, of) = trainer.steps();
    Err(TrainingError::Stopped { done, of, unit: TrainingUnit::Steps })
}

/// Losses since the last report, by number of layers.
#[derive(Default)]
struct MeanLosses(BTreeMap<usize, (f64, usize)>); // layers: (sum, count); the full pass is usize::MAX

impl MeanLosses {
    fn add(&mut self, step: &BackboneStep) {
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
        line += &format!("; {:.0} tokens a second, {} left", step.tokens_per_second, time_words(step.seconds_left));
        if skipped > 0 {
            line += &format!(" ({skipped} batches skipped: their loss was not finite)");
        }
        line
    }
}

/// Why the result is not good: the full pass's perplexity rose by more than `tolerance` percent.
fn risen(before: &Perplexities, after: &Perplexities, tolerance: f32) -> Option<String> {
    let (old, new) = (before.full().perplexity, after.full().perplexity);
    let change = (new / old - 1.0) * 100.0;
    // A change that is not a number is not good either.
    if change <= f64::from(tolerance) {
        return None;
    }
    Some(format!(
        "the full pass's perplexity rose from {old:.3} to {new:.3}, by {change:.1}%, beyond the tolerance of \
         {tolerance}%: the result is not good"
    ))
}

#[cfg(test)]
mod tests {
    use selfspec_train::ExitPerplexity;

    use super::*;

    fn of(full: f64) -> Perplexities {
        let reading = |layers, perplexity, agreement| ExitPerplexity { layers, perplexity, agreement };
        Perplexities { readings: vec![reading(4, 30.0, 0.5), reading(8, full, 1.0)], tokens: 100 }
    }

    #[test]
    fn a_rise_beyond_the_tolerance_is_refused() {
        assert_eq!(risen(&of(10.0), &of(10.19), 2.0), None);
        assert_eq!(risen(&of(10.0), &of(9.0), 0.0), None);
        let why = risen(&of(10.0), &of(10.5), 2.0).expect("five percent");
        assert!(why.starts_with("the full pass's perplexity rose from 10.000 to 10.500, by 5.0%, beyond"), "{why}");
        assert!(risen(&of(10.0), &of(f64::NAN), 2.0).is_some() && risen(&of(10.0), &of(f64::INFINITY), 2.0).is_some());
    }
}
