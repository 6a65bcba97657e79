//! [`HeadTrainer`]: takes the steps of a head's training.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selfspec_model::{CpuModel, ExitHeadCard, TokenId};

use crate::data::corpus::Corpus;
use crate::data::rows::Rows;
use crate::data::states::HiddenStateCache;
use crate::error::TrainError;
use crate::head::evaluation::{HeadEvaluation, HeldOutEvaluator};
use crate::head::file::{self, HeadPrecision};
use crate::head::frozen::Frozen;
use crate::head::loss::{LossSums, LossWeights};
use crate::head::options::{HeadOptions, HeadRun};
use crate::head::plan::HeadPlan;
use crate::head::progress::{HeadStep, HeadTrainingEvent};
use crate::head::rollout::Rollout;
use crate::head::source::RowSource;
use crate::layer::weights::Weights;
use crate::math::wide::add;
use crate::steps::batches::{Batches, ranges, shards};
use crate::steps::batches::{LEAST_TOKENS, MOST_FAILED};
use crate::steps::checkpoint::{Checkpoint, Header, VERSION};
use crate::steps::optimizer::{Optimizer, Rates};

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainingResult {
    /// All steps were taken; with the last evaluation, unless the run evaluates nothing.
    Finished(Option<HeadEvaluation>),
    /// The caller stopped the run. Another run of this trainer, or of one that reads the
    /// checkpoint, continues it.
    Stopped,
}

/// A head in training.
pub struct HeadTrainer {
    options: HeadOptions,
    identity: String,
    vocab: Vec<TokenId>,
    corpus: Arc<Corpus>,
    source: RowSource,
    frozen: Frozen,
    model: Arc<CpuModel>,
    weights: Weights,
    values: Vec<f32>,
    gain: f32, // of the fuse's values
    optimizer: Optimizer,
    batches: Batches,
    held_out: Vec<usize>,
    judge: Option<HeldOutEvaluator>,
    step: usize,
    failed: usize, // batches in a row
    parts: Vec<Mutex<Shard>>,
    workers: Vec<Mutex<Worker>>,
}

/// A shard of a batch, and its results.
struct Shard {
    texts: Vec<usize>,
    gradient: Vec<f32>,
    result: Result<LossSums, TrainError>,
}

/// The buffers of a thread.
#[derive(Default)]
struct Worker {
    rows: Rows,
    rollout: Rollout,
}

impl HeadTrainer {
    /// A trainer of a head for `model` that can draft the tokens `vocab`, which ascend, on
    /// `corpus`, whose hidden states are in `cache`.
    ///
    /// # Errors
    /// An option is out of its range, the cache belongs to another corpus, a token is unknown, or
    /// no text has an answer.
    pub fn new(
        model: Arc<CpuModel>,
        corpus: Arc<Corpus>,
        cache: HiddenStateCache,
        vocab: Vec<TokenId>,
        options: HeadOptions,
    ) -> Result<HeadTrainer, TrainError> {
        options.check()?;
        options.head.check(&model)?;
        corpus.check(model.vocab())?;
        check_vocab(&vocab, model.vocab())?;
        let (texts, held_out) = corpus.split(options.held_out, options.seed);
        if texts.is_empty() {
            return Err(TrainError::NoText { purpose: "train on", texts: corpus.texts.len() });
        }
        let (fingerprint, texts_fingerprint) = cache.fingerprints();
        let stated = serde_json::to_string(&options).expect("options are plain data");
        let tokens = vocab.iter().fold(vocab.len() as u64, |h, t| (h ^ u64::from(*t)).wrapping_mul(0x100_0000_01b3));
        let identity = format!("model {fingerprint}, texts {texts_fingerprint}, vocabulary {tokens:016x}, {stated}");
        let len = |i: usize| corpus.texts[i].tokens.len();
        let positions = corpus.texts.iter().map(|text| text.tokens.len()).max().unwrap_or(0);
        let shape = options.head.shape(&model, positions);
        let source = RowSource::new(model.clone(), corpus.clone(), cache, &options.head)?;
        let gain = source.size_of_states(&texts)?.max(1e-3);
        let values = options.head.initial(&model, &shape, options.seed, gain);
        let numbered = texts.iter().map(|i| (*i, len(*i))).collect();
        let batches = Batches::new(numbered, options.batch_tokens, options.epochs, options.seed);
        let part = || {
            Mutex::new(Shard { texts: Vec::new(), gradient: vec![0.0; values.len()], result: Ok(LossSums::zero(0)) })
        };
        Ok(HeadTrainer {
            identity,
            frozen: Frozen::of_model(&model, &vocab),
            source,
            gain,
            weights: Weights::new(shape, &values),
            optimizer: Optimizer::new(values.len()),
            parts: (0..options.shards).map(|_| part()).collect(),
            workers: Vec::new(),
            judge: None,
            step: 0,
            failed: 0,
            held_out,
            batches,
            values,
            model,
            corpus,
            vocab,
            options,
        })
    }

    /// Starts from the values of a head's file instead of the model's last layer. Returns the card
    /// of the head.
    ///
    /// The head must have the same design, but may have another vocabulary and belong to another
    /// model of the same shape. Call this before the first step, and before
    /// [`HeadTrainer::resume`].
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or holds a head of another design.
    pub fn start_from(&mut self, path: &Path) -> Result<ExitHeadCard, TrainError> {
        let (values, card) = file::read(path, &self.weights.layout)?;
        let HeadPlan { exit_layer, features, ffn_dim } = &self.options.head;
        if (card.exit_layer, &card.features, card.ffn_dim) != (*exit_layer, features, *ffn_dim) {
            let words = |exit: usize, features: &[usize], ffn: usize| {
                format!("on layer {exit}, with features {features:?} and a feed-forward part of {ffn}")
            };
            return Err(TrainError::Mismatch {
                path: path.to_owned(),
                what: "head",
                theirs: words(card.exit_layer, &card.features, card.ffn_dim),
                ours: words(*exit_layer, features, *ffn_dim),
            });
        }
        let hash = values.iter().fold(0u64, |h, x| (h ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3));
        self.identity += &format!(", from {hash:016x}");
        self.values = values;
        self.weights.set(&self.values, 1);
        Ok(card)
    }

    /// Resumes from a checkpoint of the same training.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or belongs to another training: other options, model or
    /// texts.
    pub fn resume(&mut self, path: &Path) -> Result<(), TrainError> {
        let read = Checkpoint::read(path, &self.identity, self.values.len())?;
        self.values = read.values;
        self.optimizer = Optimizer { mean: read.mean, square: read.square, steps: read.header.optimizer_steps };
        (self.step, self.failed) = (read.header.step, read.header.failed);
        self.weights.set(&self.values, 1);
        Ok(())
    }

    /// Writes the checkpoint that [`HeadTrainer::resume`] reads.
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
        let Optimizer { mean, square, .. } = &self.optimizer;
        Checkpoint { header, values: self.values.clone(), mean: mean.clone(), square: square.clone() }.write(path)
    }

    /// Takes the remaining steps. `on_event` receives all events, and stops the run by breaking.
    ///
    /// # Errors
    /// Hidden states cannot be read, the state cannot be saved, or [`TrainError::Diverged`].
    pub fn run(
        &mut self,
        run: &HeadRun<'_>,
        on_event: &mut dyn FnMut(&HeadTrainingEvent) -> ControlFlow<()>,
    ) -> Result<TrainingResult, TrainError> {
        let threads = run.threads.max(1);
        let (begun, steps, mut tokens, first) = (Instant::now(), self.batches.steps(), 0, self.step);
        let mut judged = Duration::ZERO;
        while self.step < steps {
            let mut report = self.take_step(threads)?;
            tokens += report.tokens;
            let seconds = (begun.elapsed() - judged).as_secs_f64();
            report.tokens_per_second = tokens as f64 / seconds.max(1e-9);
            report.seconds_left = seconds / (self.step - first) as f64 * (steps - self.step) as f64;
            if self.failed >= MOST_FAILED {
                return Err(TrainError::Diverged { batches: self.failed, step: self.step });
            }
            let mut flow = on_event(&HeadTrainingEvent::Step(report));
            let last = self.step == steps;
            if flow.is_continue() && !last && run.evaluate_every > 0 && self.step.is_multiple_of(run.evaluate_every) {
                let start = Instant::now();
                let evaluation = self.evaluate(run.evaluated_drafts, threads)?;
                judged += start.elapsed();
                flow = on_event(&HeadTrainingEvent::Evaluated { step: self.step, evaluation });
            }
            let due = last || flow.is_break() || self.step.is_multiple_of(run.save_every.max(1));
            if let Some(path) = run.checkpoint.filter(|_| due) {
                self.save(path)?;
                let told = on_event(&HeadTrainingEvent::Saved { step: self.step, path: path.to_owned() });
                flow = if told.is_break() { told } else { flow };
            }
            if flow.is_break() && !last {
                return Ok(TrainingResult::Stopped);
            }
        }
        if run.evaluate_every == 0 {
            return Ok(TrainingResult::Finished(None));
        }
        let evaluation = self.evaluate(run.evaluated_drafts, threads)?;
        let _ = on_event(&HeadTrainingEvent::Evaluated { step: self.step, evaluation: evaluation.clone() });
        Ok(TrainingResult::Finished(Some(evaluation)))
    }

    /// Evaluates the head on the held-out texts: `drafts` positions ahead of every position of
    /// their answers.
    ///
    /// # Errors
    /// Hidden states cannot be read.
    pub fn evaluate(&mut self, drafts: usize, threads: usize) -> Result<HeadEvaluation, TrainError> {
        let judge = match self.judge.take() {
            Some(judge) => judge,
            None => {
                let (vocab, held_out) = (&self.vocab, &self.held_out);
                HeldOutEvaluator::new(&self.model, &self.frozen, vocab, &self.source, &self.corpus, held_out, threads)?
            }
        };
        self.judge.insert(judge).evaluate(&self.weights, &self.frozen, &self.source, drafts.max(1), threads)
    }

    /// Steps taken, and steps of the whole training.
    pub fn steps(&self) -> (usize, usize) {
        (self.step, self.batches.steps())
    }

    /// Numbers of the held-out texts.
    pub fn held_out(&self) -> &[usize] {
        &self.held_out
    }

    /// Number of trained values.
    pub fn parameters(&self) -> usize {
        self.values.len()
    }

    /// Writes the head's file. The fields of `card` that follow from the head and the training are
    /// filled in; the caller supplies the rest.
    ///
    /// # Errors
    /// The file cannot be written, or the model's width is not a multiple of the block length.
    pub fn write_head(&self, path: &Path, card: ExitHeadCard, precision: HeadPrecision) -> Result<(), TrainError> {
        let card = ExitHeadCard {
            version: ExitHeadCard::VERSION,
            exit_layer: self.options.head.exit_layer,
            features: self.options.head.features.clone(),
            ffn_dim: self.options.head.ffn_dim,
            vocab: self.vocab.len(),
            tokens: self.corpus.tokens(),
            epochs: self.batches.epochs(self.step),
            seed: self.options.seed,
            ..card
        };
        file::write(path, &card, &self.weights.layout, &self.values, &self.vocab, precision)
    }

    /// Takes one step: the gradient of one batch, then the optimizer.
    fn take_step(&mut self, threads: usize) -> Result<HeadStep, TrainError> {
        let steps = self.batches.steps();
        let (rate, refusal) =
            (self.options.schedule.rate(self.step, steps), self.options.schedule.refusal_share(self.step, steps));
        let texts: Vec<(usize, usize)> =
            self.batches.get(self.step).iter().map(|i| (*i, self.corpus.texts[*i].tokens.len())).collect();
        let rolls = !self.options.head.features.is_empty() && self.options.schedule.rolls_out(self.step, steps);
        let rollout = if rolls { self.options.rollout } else { 1 };
        let counts = (0..rollout).map(|j| texts.iter().map(|t| self.corpus.texts[t.0].counted(j)).sum()).collect();
        let weighing = LossWeights { decay: self.options.decay, refusal, counts };
        let sums = self.gradient(&texts, &weighing, threads)?;
        let loss = weighing.total(&sums);
        let mut gradient_norm = f64::NAN;
        if loss.is_finite() {
            let gradient = &self.parts[0].get_mut().unwrap_or_else(PoisonError::into_inner).gradient;
            let layout = &self.weights.layout;
            let rates = Rates::of(layout, rate, self.gain);
            gradient_norm = self.optimizer.step(layout, &mut self.values, gradient, &rates, threads);
        }
        let skipped = !gradient_norm.is_finite();
        self.failed = if skipped { self.failed + 1 } else { 0 };
        if !skipped {
            self.weights.set(&self.values, threads);
        }
        self.step += 1;
        let means = |sums: &[f64]| sums.iter().zip(&weighing.counts).map(|(s, n)| s / (*n).max(1) as f64).collect();
        Ok(HeadStep {
            step: self.step,
            steps,
            epochs: self.batches.epochs(self.step),
            loss,
            divergence: means(&sums.divergence),
            overlap: means(&sums.overlap),
            gradient_norm,
            learning_rate: rate,
            skipped,
            tokens: texts.iter().map(|t| t.1).sum(),
            tokens_per_second: 0.0,
            seconds_left: 0.0,
        })
    }

    /// The losses of a batch. The first shard then holds the gradient. Shards are added in their
    /// order, whichever thread computed them.
    fn gradient(
        &mut self,
        texts: &[(usize, usize)],
        weighing: &LossWeights,
        threads: usize,
    ) -> Result<LossSums, TrainError> {
        let tokens: usize = texts.iter().map(|text| text.1).sum();
        let parts = self.options.shards.min(tokens.div_ceil(LEAST_TOKENS));
        for (part, texts) in self.parts.iter_mut().zip(shards(texts, parts)) {
            part.get_mut().unwrap_or_else(PoisonError::into_inner).texts = texts;
        }
        let threads = threads.min(parts);
        while self.workers.len() < threads {
            self.workers.push(Mutex::default());
        }
        let (next, this) = (AtomicUsize::new(0), &*self);
        std::thread::scope(|scope| {
            for worker in &this.workers[..threads] {
                let next = &next;
                scope.spawn(move || {
                    let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                    while let Some(part) = this.parts[..parts].get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
                        part.result = this.shard_gradient(&mut worker, &mut part, weighing);
                    }
                });
            }
        });
        let mut sums = LossSums::zero(weighing.counts.len());
        let mut gradients = Vec::new();
        for part in &mut self.parts[..parts] {
            let part = part.get_mut().unwrap_or_else(PoisonError::into_inner);
            sums.add(&std::mem::replace(&mut part.result, Ok(LossSums::zero(0)))?);
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
        Ok(sums)
    }

    fn shard_gradient(
        &self,
        worker: &mut Worker,
        part: &mut Shard,
        weighing: &LossWeights,
    ) -> Result<LossSums, TrainError> {
        part.gradient.fill(0.0);
        if part.texts.is_empty() {
            return Ok(LossSums::zero(weighing.counts.len()));
        }
        self.source.load(&part.texts, &mut worker.rows)?;
        worker.rollout.forward(&self.weights, &worker.rows, weighing.counts.len());
        Ok(worker.rollout.backward(&self.frozen, &self.weights, &worker.rows, weighing, &mut part.gradient))
    }
}

fn check_vocab(vocab: &[TokenId], of: usize) -> Result<(), TrainError> {
    let wrong = |why: String| Err(TrainError::Option { field: "vocab", why });
    if vocab.is_empty() {
        return wrong("no token to propose".to_owned());
    }
    if let Some(pair) = vocab.windows(2).find(|pair| pair[0] >= pair[1]) {
        return wrong(format!("its tokens must ascend, and {} follows {}", pair[1], pair[0]));
    }
    match vocab.last().filter(|last| **last as usize >= of) {
        Some(last) => wrong(format!("token {last} is not in a vocabulary of {of}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
