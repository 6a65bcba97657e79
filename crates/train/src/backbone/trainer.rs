//! [`BackboneTrainer`]: takes the steps of a whole model's training.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use selfspec_model::CpuModel;
use selfspec_weights::Checkpoint as Weights;

use super::course::Term;
use super::file;
use super::options::{BackboneOptions, BackboneRun};
use super::pass::{Batch, Pass};
use super::perplexity::Perplexities;
use super::report::{BackboneEvent, BackboneStep};
use super::spans::TokenSpans;
use super::tensors::Tensors;
use super::weights::ModelWeights;
use crate::error::TrainError;
use crate::math::wide::add;
use crate::steps::batches::{Batches, ranges, shards};
use crate::steps::batches::{LEAST_TOKENS, MOST_FAILED};
use crate::steps::checkpoint::{Checkpoint, Header, VERSION, save};
use crate::steps::optimizer::{Optimizer, Rates};

/// Most values of one job of the optimizer, so that the threads' shares are even.
const JOB: usize = 1 << 18;

/// A whole model in training.
pub struct BackboneTrainer {
    options: BackboneOptions,
    identity: String,
    source: Weights,
    spans: TokenSpans,
    tensors: Tensors,
    values: Vec<f32>,
    packs: ModelWeights,
    optimizer: Optimizer,
    batches: Batches,
    steps: usize, // in all
    step: usize,
    failed: usize, // batches in a row
    parts: Vec<Mutex<Part>>,
    workers: Vec<Mutex<BatchWorker>>,
}

/// A shard of a batch, and its results.
#[derive(Default)]
struct Part {
    places: Vec<usize>, // of its spans in the batch
    gradient: Vec<f32>,
    sums: Vec<f64>, // (term)
}

/// The buffers of a thread.
#[derive(Default)]
struct BatchWorker {
    batch: Batch,
    pass: Pass,
}

impl BackboneTrainer {
    /// A trainer of `model`, whose files are at `path`, on `spans`.
    ///
    /// # Errors
    /// An option is out of its range, the family cannot be trained, a token is unknown, or the
    /// files cannot be read.
    pub fn new(
        model: &CpuModel,
        path: &Path,
        spans: TokenSpans,
        options: BackboneOptions,
        threads: usize,
    ) -> Result<BackboneTrainer, TrainError> {
        let source = Weights::open(path).map_err(|e| TrainError::bad(path, e))?;
        options.check(model.config().n_layers)?;
        spans.check(model.vocab())?;
        if spans.train.is_empty() || spans.held_out.is_empty() {
            return Err(TrainError::NoSpan { tokens: spans.tokens() as usize, len: spans.longest() });
        }
        let tensors = Tensors::new(model, &source, spans.longest())?;
        let values = tensors.initial(model);
        let stated = serde_json::to_string(&options).expect("options are plain data");
        let identity = format!("whole model {}, spans {}, {stated}", source.fingerprint(), spans.fingerprint());
        let numbered = spans.train.iter().map(Vec::len).enumerate().collect();
        let batches = Batches::new(numbered, options.batch_tokens, options.epochs, options.seed);
        let steps = batches.steps().min(options.steps.unwrap_or(usize::MAX));
        Ok(BackboneTrainer {
            identity,
            packs: ModelWeights::new(&tensors, &values, threads),
            optimizer: Optimizer::new(values.len()),
            parts: (0..options.shards).map(|_| Mutex::default()).collect(),
            workers: Vec::new(),
            step: 0,
            failed: 0,
            options,
            source,
            spans,
            tensors,
            values,
            batches,
            steps,
        })
    }

    /// Resumes from a checkpoint of the same training.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or belongs to another training: other options, model or
    /// texts.
    pub fn resume(&mut self, path: &Path, threads: usize) -> Result<(), TrainError> {
        let read = Checkpoint::read(path, &self.identity, self.values.len())?;
        self.values = read.values;
        self.optimizer = Optimizer { mean: read.mean, square: read.square, steps: read.header.optimizer_steps };
        (self.step, self.failed) = (read.header.step, read.header.failed);
        self.packs.set(&self.tensors, &self.values, threads);
        Ok(())
    }

    /// Writes the checkpoint that [`BackboneTrainer::resume`] reads.
    ///
    /// # Errors
    /// The file cannot be written. The old file is then unchanged.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let header = Header {
            version: VERSION,
            identity: self.identity.clone(),
            step: self.step,
            optimizer_steps: self.optimizer.steps,
            failed: self.failed,
            len: self.values.len(),
        };
        save(path, &header, [&self.values, &self.optimizer.mean, &self.optimizer.square])
    }

    /// Takes the remaining steps. `on_event` receives all events, and stops the run by breaking.
    /// Returns whether all steps were taken.
    ///
    /// # Errors
    /// The state cannot be saved, or [`TrainError::Diverged`].
    pub fn run(
        &mut self,
        run: &BackboneRun<'_>,
        on_event: &mut dyn FnMut(&BackboneEvent) -> ControlFlow<()>,
    ) -> Result<bool, TrainError> {
        let threads = run.threads.max(1);
        let (begun, mut saved, mut tokens, first) = (Instant::now(), Instant::now(), 0, self.step);
        while self.step < self.steps {
            let mut report = self.take_step(threads);
            tokens += report.tokens;
            let seconds = begun.elapsed().as_secs_f64();
            report.tokens_per_second = tokens as f64 / seconds.max(1e-9);
            report.seconds_left = seconds / (self.step - first) as f64 * (self.steps - self.step) as f64;
            if self.failed >= MOST_FAILED {
                return Err(TrainError::Diverged { batches: self.failed, step: self.step });
            }
            let flow = on_event(&BackboneEvent::Step(report));
            let last = self.step == self.steps;
            // No save after a failed batch: after ten of them the saved state could only fail
            // again.
            let due = last || flow.is_break() || (saved.elapsed() >= run.save_every && self.failed == 0);
            let mut told = ControlFlow::Continue(());
            if let Some(path) = run.checkpoint.filter(|_| due) {
                self.save(path)?;
                saved = Instant::now();
                told = on_event(&BackboneEvent::Saved { step: self.step, path: path.to_owned() });
            }
            if !last && (flow.is_break() || told.is_break()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The perplexity of the held-out spans, after each exit and after all layers. With
    /// `as_written`, the values take a round trip through the file that [`BackboneTrainer::write`]
    /// writes.
    pub fn perplexities(&mut self, as_written: bool, threads: usize) -> Perplexities {
        let mut layers = self.options.exits.clone();
        layers.push(self.packs.layers.len());
        if as_written {
            self.packs.set(&self.tensors, &file::rounded(&self.tensors, &self.values), threads);
        }
        let read = Perplexities::of(&self.packs, &self.spans.held_out, &layers, threads);
        if as_written {
            self.packs.set(&self.tensors, &self.values, threads);
        }
        read
    }

    /// Writes the model, as a GGUF file or a Hugging Face folder like its source. Other files of a
    /// folder are copied. Returns the files.
    ///
    /// # Errors
    /// A file cannot be written, or a value is out of range for its type.
    pub fn write(&self, out: &Path) -> Result<Vec<PathBuf>, TrainError> {
        file::write(&self.tensors, &self.values, &self.source, out)
    }

    /// Whether the model is a GGUF file.
    pub fn is_gguf(&self) -> bool {
        matches!(self.source.source(), selfspec_weights::Source::Gguf(_))
    }

    /// Steps taken, and steps of the whole training.
    pub fn steps(&self) -> (usize, usize) {
        (self.step, self.steps)
    }

    /// Number of trained values.
    pub fn parameters(&self) -> usize {
        self.values.len()
    }

    /// Bytes of the values, their two means, their packed copies and the gradients, without the
    /// buffers of a batch.
    pub fn state_bytes(&self) -> usize {
        4 * self.values.len() * (1 + 2 + 2 + self.options.shards)
    }

    /// Takes one step: the gradient of one batch, then the optimizer.
    fn take_step(&mut self, threads: usize) -> BackboneStep {
        let (steps, n) = (self.steps, self.packs.layers.len());
        let rate = self.options.schedule.rate(self.step, steps);
        let course = self.options.course();
        let terms = course.terms(self.step, steps, n);
        let spans = self.batches.get(self.step).to_vec();
        let runs: Vec<Vec<bool>> = (0..spans.len()).map(|place| course.runs(self.step, steps, place, n)).collect();
        let left_out = runs.iter().flatten().filter(|runs| !**runs).count() as f64 / (spans.len() * n).max(1) as f64;
        let count: usize = spans.iter().map(|i| self.spans.train[*i].len() - 1).sum();
        let sums = self.gradient(&spans, &runs, &terms, count, threads);
        let means: Vec<f64> = sums.iter().map(|sum| sum / count as f64).collect();
        let mut gradient_norm = f64::NAN;
        if means.iter().all(|mean| mean.is_finite()) {
            let gradient = &self.parts[0].get_mut().unwrap_or_else(PoisonError::into_inner).gradient;
            let mut jobs = Vec::new();
            for place in &self.tensors.places {
                let rates = Rates::plain(rate, place.matrix);
                let starts = place.place.clone().step_by(JOB);
                jobs.extend(starts.map(|from| (from..place.place.end.min(from + JOB), rates)));
            }
            gradient_norm = self.optimizer.advance(&jobs, &mut self.values, gradient, threads);
        }
        let skipped = !gradient_norm.is_finite();
        self.failed = if skipped { self.failed + 1 } else { 0 };
        if !skipped {
            self.packs.set(&self.tensors, &self.values, threads);
        }
        self.step += 1;
        let exits = terms.iter().zip(&means).filter(|(term, _)| term.layers < n);
        BackboneStep {
            step: self.step,
            steps,
            loss: means[means.len() - 1],
            exits: exits.map(|(term, mean)| (term.layers, *mean)).collect(),
            left_out,
            gradient_norm,
            learning_rate: rate,
            skipped,
            tokens: spans.iter().map(|i| self.spans.train[*i].len()).sum(),
            tokens_per_second: 0.0,
            seconds_left: 0.0,
        }
    }

    /// The sums of the losses of a batch of `count` rows that count. The first shard then holds the
    /// gradient. Shards are added in their order, whichever thread computed them.
    fn gradient(
        &mut self,
        spans: &[usize],
        runs: &[Vec<bool>],
        terms: &[Term],
        count: usize,
        threads: usize,
    ) -> Vec<f64> {
        let sized: Vec<(usize, usize)> =
            spans.iter().enumerate().map(|(place, i)| (place, self.spans.train[*i].len())).collect();
        let tokens: usize = sized.iter().map(|span| span.1).sum();
        let parts = self.options.shards.min(tokens.div_ceil(LEAST_TOKENS)).min(spans.len());
        for (part, places) in self.parts.iter_mut().zip(shards(&sized, parts)) {
            part.get_mut().unwrap_or_else(PoisonError::into_inner).places = places;
        }
        let threads = threads.min(parts);
        while self.workers.len() < threads {
            self.workers.push(Mutex::default());
        }
        let (next, this, scale) = (AtomicUsize::new(0), &*self, 1.0 / count.max(1) as f32);
        std::thread::scope(|scope| {
            for worker in &this.workers[..threads] {
                let next = &next;
                scope.spawn(move || {
                    let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                    while let Some(part) = this.parts[..parts].get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
                        let (Part { places, gradient, sums }, BatchWorker { batch, pass }) = (&mut *part, &mut *worker);
                        gradient.clear();
                        gradient.resize(this.values.len(), 0.0);
                        batch.clear();
                        places.iter().for_each(|p| batch.push(&this.spans.train[spans[*p]], runs[*p].clone()));
                        *sums = pass.losses(&this.tensors, &this.packs, batch, terms, scale, gradient);
                    }
                });
            }
        });
        let mut sums = vec![0.0; terms.len()];
        let mut gradients = Vec::new();
        for part in &mut self.parts[..parts] {
            let part = part.get_mut().unwrap_or_else(PoisonError::into_inner);
            sums.iter_mut().zip(&part.sums).for_each(|(sum, part)| *sum += part);
            gradients.push(&mut part.gradient);
        }
        let (first, others) = gradients.split_first_mut().expect("there is at least one part");
        let mut left: &mut [f32] = first;
        std::thread::scope(|scope| {
            for range in ranges(left.len(), threads) {
                let (to, rest) = std::mem::take(&mut left).split_at_mut(range.len());
                left = rest;
                let others = &*others;
                scope.spawn(move || others.iter().for_each(|from| add(to, &from[range.clone()])));
            }
        });
        sums
    }
}
