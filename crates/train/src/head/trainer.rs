//! The training of a head.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selfspec_model::{CpuModel, ExitHeadCard, TokenId};

use crate::data::corpus::Corpus;
use crate::data::rows::Rows;
use crate::data::states::StateCache;
use crate::error::TrainError;
use crate::head::file::{self, Precision};
use crate::head::frozen::Frozen;
use crate::head::judge::{Judge, Judgement};
use crate::head::loss::{Sums, Weighing};
use crate::head::options::{RunOptions, TrainOptions};
use crate::head::plan::HeadPlan;
use crate::head::progress::{Event, StepReport};
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
pub enum Outcome {
    /// All steps have been taken.
    Finished(Option<Judgement>),
    /// The caller stopped it. It goes on with another run, of this trainer or of one that reads the checkpoint.
    Stopped,
}

/// A head in training.
pub struct Trainer {
    options: TrainOptions,
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
    judge: Option<Judge>,
    step: usize,
    failed: usize, // batches in a row
    parts: Vec<Mutex<Part>>,
    workers: Vec<Mutex<Worker>>,
}

/// A shard of a batch, and what came of it.
struct Part {
    texts: Vec<usize>,
    gradient: Vec<f32>,
    result: Result<Sums, TrainError>,
}

/// What a thread computes with.
#[derive(Default)]
struct Worker {
    rows: Rows,
    rollout: Rollout,
}

impl Trainer {
    /// A head for `model` that can propose the tokens `vocab`, which ascend, to be trained on `corpus`, whose hidden states are in `cache`.
    ///
    /// # Errors
    /// An option is out of its range, the cache is of something else, a token is unknown, or no text has an answer.
    pub fn new(
        model: Arc<CpuModel>,
        corpus: Arc<Corpus>,
        cache: StateCache,
        vocab: Vec<TokenId>,
        options: TrainOptions,
    ) -> Result<Trainer, TrainError> {
        options.check()?;
        options.head.check(&model)?;
        corpus.check(model.vocab())?;
        check_vocab(&vocab, model.vocab())?;
        let (texts, held_out) = corpus.split(options.held_out, options.seed);
        if texts.is_empty() {
            return Err(TrainError::NoText { purpose: "train on", texts: corpus.texts.len() });
        }
        let (fingerprint, texts_fingerprint) = cache.made_for();
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
        let part =
            || Mutex::new(Part { texts: Vec::new(), gradient: vec![0.0; values.len()], result: Ok(Sums::zero(0)) });
        Ok(Trainer {
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

    /// Starts from the values of a head's file and not from the model's last layer. The head must be what this one is to become, but may have
    /// another vocabulary and be of another model of the same shape. Before the first step, and before [`Trainer::resume`]. Gives its card.
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

    /// Goes on from a checkpoint of the same training.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is of another training: other options, model or texts.
    pub fn resume(&mut self, path: &Path) -> Result<(), TrainError> {
        let read = Checkpoint::read(path, &self.identity, self.values.len())?;
        self.values = read.values;
        self.optimizer = Optimizer { mean: read.mean, square: read.square, steps: read.header.optimizer_steps };
        (self.step, self.failed) = (read.header.step, read.header.failed);
        self.weights.set(&self.values, 1);
        Ok(())
    }

    /// Writes what [`Trainer::resume`] reads.
    ///
    /// # Errors
    /// The file cannot be written; what was there is then as before.
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

    /// Takes the steps that are left. `tell` hears of everything, and stops the run by breaking.
    ///
    /// # Errors
    /// Hidden states cannot be read, the state cannot be saved, or [`TrainError::Diverged`].
    pub fn run(
        &mut self,
        run: &RunOptions<'_>,
        tell: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Outcome, TrainError> {
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
            let mut flow = tell(&Event::Step(report));
            let last = self.step == steps;
            if flow.is_continue() && !last && run.judge_every > 0 && self.step.is_multiple_of(run.judge_every) {
                let start = Instant::now();
                let judgement = self.judge(run.judged_drafts, threads)?;
                judged += start.elapsed();
                flow = tell(&Event::Judged { step: self.step, judgement });
            }
            let due = last || flow.is_break() || self.step.is_multiple_of(run.save_every.max(1));
            if let Some(path) = run.checkpoint.filter(|_| due) {
                self.save(path)?;
                let told = tell(&Event::Saved { step: self.step, path: path.to_owned() });
                flow = if told.is_break() { told } else { flow };
            }
            if flow.is_break() && !last {
                return Ok(Outcome::Stopped);
            }
        }
        if run.judge_every == 0 {
            return Ok(Outcome::Finished(None));
        }
        let judgement = self.judge(run.judged_drafts, threads)?;
        let _ = tell(&Event::Judged { step: self.step, judgement: judgement.clone() });
        Ok(Outcome::Finished(Some(judgement)))
    }

    /// How the head does on the texts that are held out: `drafts` positions ahead of every position of their answers.
    ///
    /// # Errors
    /// Hidden states cannot be read.
    pub fn judge(&mut self, drafts: usize, threads: usize) -> Result<Judgement, TrainError> {
        let judge = match self.judge.take() {
            Some(judge) => judge,
            None => {
                let (vocab, held_out) = (&self.vocab, &self.held_out);
                Judge::new(&self.model, &self.frozen, vocab, &self.source, &self.corpus, held_out, threads)?
            }
        };
        self.judge.insert(judge).judge(&self.weights, &self.frozen, &self.source, drafts.max(1), threads)
    }

    /// Steps taken, and steps in all.
    pub fn steps(&self) -> (usize, usize) {
        (self.step, self.batches.steps())
    }

    /// Numbers of the texts that are held out.
    pub fn held_out(&self) -> &[usize] {
        &self.held_out
    }

    /// Numbers that the head has.
    pub fn parameters(&self) -> usize {
        self.values.len()
    }

    /// Writes the head's file. Of `card`, what follows from the head and the training is filled in: the rest is the caller's.
    ///
    /// # Errors
    /// The file cannot be written, or the model's width is no whole number of blocks.
    pub fn write_head(&self, path: &Path, card: ExitHeadCard, precision: Precision) -> Result<(), TrainError> {
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

    /// One step: the gradient of one batch, and the optimizer's answer to it.
    fn take_step(&mut self, threads: usize) -> Result<StepReport, TrainError> {
        let steps = self.batches.steps();
        let (rate, refusal) =
            (self.options.schedule.rate(self.step, steps), self.options.schedule.refusal_share(self.step, steps));
        let texts: Vec<(usize, usize)> =
            self.batches.get(self.step).iter().map(|i| (*i, self.corpus.texts[*i].tokens.len())).collect();
        let rolls = !self.options.head.features.is_empty() && self.options.schedule.rolls_out(self.step, steps);
        let rollout = if rolls { self.options.rollout } else { 1 };
        let counts = (0..rollout).map(|j| texts.iter().map(|t| self.corpus.texts[t.0].counted(j)).sum()).collect();
        let weighing = Weighing { decay: self.options.decay, refusal, counts };
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
        Ok(StepReport {
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

    /// The losses of a batch, whose gradient is left in the first part. Parts are added in their order, whoever computed them.
    fn gradient(&mut self, texts: &[(usize, usize)], weighing: &Weighing, threads: usize) -> Result<Sums, TrainError> {
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
                        part.result = this.part_gradient(&mut worker, &mut part, weighing);
                    }
                });
            }
        });
        let mut sums = Sums::zero(weighing.counts.len());
        let mut gradients = Vec::new();
        for part in &mut self.parts[..parts] {
            let part = part.get_mut().unwrap_or_else(PoisonError::into_inner);
            sums.add(&std::mem::replace(&mut part.result, Ok(Sums::zero(0)))?);
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

    fn part_gradient(&self, worker: &mut Worker, part: &mut Part, weighing: &Weighing) -> Result<Sums, TrainError> {
        part.gradient.fill(0.0);
        if part.texts.is_empty() {
            return Ok(Sums::zero(weighing.counts.len()));
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
mod tests {
    use super::*;
    use crate::data::corpus::Text;
    use crate::data::states::StateSource;
    use crate::head::plan::HeadPlan;
    use selfspec_kernels::Team;
    use selfspec_testkit::{Family, TinyModel};
    use selfspec_weights::Checkpoint as Weights;

    struct Same;

    impl StateSource for Same {
        fn states(
            &mut self,
            tokens: &[TokenId],
            layers: &[usize],
        ) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error + Send + Sync>> {
            let state = |i: usize| ((i * 7919) % 1000) as f32 / 500.0 - 1.0;
            Ok(layers.iter().map(|l| (0..tokens.len() * 40).map(|i| state(i + l)).collect()).collect())
        }
    }

    /// A trainer of a tiny head of this width of feed-forward part, with files in `dir`.
    fn trainer(dir: &Path, ffn_dim: usize) -> Trainer {
        let gguf = TinyModel::new(Family::Llama).gguf();
        let checkpoint = Weights::from_gguf_bytes(Path::new("tiny.gguf"), gguf.bytes()).expect("whole");
        let model = Arc::new(CpuModel::open(&checkpoint, &Team::new(1)).expect("sound"));
        let text = Text { domain: "a".to_owned(), prompt_len: 1, tokens: vec![1, 2, 3, 4] };
        let corpus = Arc::new(Corpus { texts: vec![text; 8] });
        let mut options = TrainOptions::new(HeadPlan { exit_layer: 1, features: vec![4], ffn_dim });
        (options.batch_tokens, options.epochs) = (4, 4.0);
        let (path, layers) = (dir.join("states"), options.head.layers(4));
        let cache = StateCache::fill(&path, &corpus, "f", 40, &layers, &mut Same, &mut |_, _| true);
        let cache = cache.expect("written").expect("complete");
        Trainer::new(model, corpus, cache, vec![1, 2], options).expect("sound")
    }

    #[test]
    fn a_training_starts_from_a_head_of_the_same_design_only() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (head, state) = (dir.path().join("head"), dir.path().join("state"));
        let mut first = trainer(dir.path(), 8);
        for _ in 0..3 {
            first.take_step(1).expect("sound");
        }
        first.write_head(&head, ExitHeadCard::default(), Precision::Bf16).expect("written");

        let mut second = trainer(dir.path(), 8);
        second.start_from(&head).expect("of the same design");
        let close = |a: &f32, b: &f32| (a - b).abs() <= 0.004 * b.abs();
        assert!(second.values.iter().zip(&first.values).all(|(a, b)| close(a, b)), "BF16 has 8 bits");
        assert!(second.values != trainer(dir.path(), 8).values);
        second.take_step(1).expect("sound");
        second.save(&state).expect("saved");

        let e = trainer(dir.path(), 8).resume(&state).expect_err("it started otherwise").to_string();
        assert!(e.contains("from"), "{e}");
        let mut third = trainer(dir.path(), 8);
        third.start_from(&head).expect("of the same design");
        third.resume(&state).expect("of the same training");
        assert!(third.values == second.values);

        let e = trainer(dir.path(), 0).start_from(&head).expect_err("another design").to_string();
        assert!(e.contains("made for another head") && e.contains("feed-forward part of 8"), "{e}");
        std::fs::write(&head, b"nothing").expect("written");
        let e = trainer(dir.path(), 8).start_from(&head).expect_err("damaged").to_string();
        assert!(e.contains("not a safetensors file"), "{e}");
    }

    #[test]
    fn batches_that_are_not_finite_are_skipped_and_ten_in_a_row_end_the_training() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut trainer = trainer(dir.path(), 8);
        let (sound, state) = (trainer.values.clone(), dir.path().join("state"));

        // What a fault of the machine might do to a few batches.
        let mut broken = sound.clone();
        broken[3] = f32::NAN;
        trainer.weights.set(&broken, 1);
        let mut skipped = 0;
        let outcome = trainer.run(&RunOptions::default(), &mut |event| {
            let Event::Step(report) = event else { return ControlFlow::Continue(()) };
            assert!(report.skipped && !report.gradient_norm.is_finite());
            skipped += 1;
            if skipped == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(outcome.expect("stopped"), Outcome::Stopped);
        assert_eq!((trainer.failed, trainer.optimizer.steps), (4, 0));
        assert!(trainer.values == sound, "nothing was learned from them");
        trainer.weights.set(&sound, 1);
        trainer.take_step(1).expect("sound");
        assert_eq!((trainer.failed, trainer.step), (0, 5));
        trainer.save(&state).expect("saved");

        trainer.weights.set(&broken, 1);
        let good = trainer.values.clone();
        let run = RunOptions { checkpoint: Some(&state), save_every: 2, ..RunOptions::default() };
        let e = trainer.run(&run, &mut |_| ControlFlow::Continue(())).expect_err("broken").to_string();
        assert!(e.starts_with("the loss of 10 batches in a row is not finite, up to step 15"), "{e}");
        trainer.resume(&state).expect("sound");
        assert!(trainer.values == good, "the last good state is on disk");
    }
}
