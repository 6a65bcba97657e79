//! Trains an exit head: answers, hidden states, training, and the head's file. Each stage leaves
//! its result in the working folder, so that a stopped run continues where it was.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use selfspec_engine::{DraftSetup, Engine, EngineOptions, ExitHeadSource, LoadedModel};
use selfspec_model::{ExitHeadCard, TokenId};
use selfspec_speculate::SamplingParams;
use selfspec_train::{
    Corpus, HeadEvaluation, HeadOptions, HeadPlan, HeadPrecision, HeadRun, HeadStep, HeadTrainer, HeadTrainingEvent,
    HeldOutAcceptance, HiddenStateCache, HiddenStateSource, TrainingResult, TrainingSchedule, TrainingText, coverage,
    frequent_tokens,
};

use super::answers::{AnswerTask, StoredAnswer, generate};
use super::control::{ReportTimer, TrainingControl, TrainingNote, time_words};
use super::documents::{BATCH, KV_BYTES};
use super::error::{TrainingError, TrainingUnit};
use super::own_prompts;
use super::states::States;
use super::work_folder::WorkFolder;
use crate::progress::Stage;
use crate::prompts::{self, PromptCase, PromptStyle};

/// Prompts that the model writes where no others are given.
const OWN_PROMPTS: usize = 2000;
/// Acceptance of first drafts below which drafting seldom pays.
const SELDOM: f64 = 0.35;
/// Drafts of a round that the report judges.
const JUDGED: usize = 5;

/// How an exit head is trained.
#[derive(Debug, Clone)]
pub struct HeadTrainingOptions {
    /// The model's name, for the head's card if the model's files give none.
    pub model: String,
    /// The head's file.
    pub out: PathBuf,
    /// The command that trains it, for the head's card.
    pub command: String,
    /// Prompt files.
    pub prompts: Vec<PathBuf>,
    /// Most prompts of each file.
    pub limit: Option<usize>,
    /// Prompts that the model writes itself. `None`: 2000 if there are no prompt files, else none.
    pub own_prompts: Option<usize>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Longest text, prompt and answer, in tokens.
    pub max_length: usize,
    /// Share of the answers that are sampled at temperature 0.8; the others are greedy.
    pub sampled: f32,
    /// Share of the prompts that are given as plain text.
    pub plain: f32,
    /// Layers of the model below the head.
    pub head_layer: usize,
    /// Layers whose states of the token before the head reads. `None`: two thirds of the depth, and
    /// all. Shape: (feature).
    pub features: Option<Vec<usize>>,
    /// Width of the head's feed-forward part; 0 is none. `None`: the model's.
    pub ffn: Option<usize>,
    /// Most tokens that the head can propose.
    pub draft_vocab: usize,
    /// Store the matrices in BF16 instead of Q8_0.
    pub bf16: bool,
    /// Times that every answer is seen.
    pub epochs: f32,
    /// Tokens in a batch, about.
    pub batch: usize,
    /// Highest learning rate.
    pub rate: f32,
    /// A head to start from.
    pub from: Option<PathBuf>,
    /// Drafts of a round that are learned from.
    pub rollout: usize,
    /// Share of the steps that learn from the first draft alone.
    pub rollout_from: f32,
    /// Decides prompts, sampled answers, the order of the answers and those that are held out.
    pub seed: u64,
    /// Threads that compute. `None`: one for each core.
    pub threads: Option<usize>,
}

/// A head that was trained and written.
#[derive(Debug, Clone)]
pub struct TrainedHead {
    /// Its acceptance on answers that were held out.
    pub evaluation: HeadEvaluation,
    /// Its numbers.
    pub parameters: usize,
    /// Bytes of its file.
    pub file_bytes: u64,
}

impl TrainedHead {
    /// Why it will seldom pay; `None` if enough of its first drafts are accepted.
    pub fn warning(&self) -> Option<String> {
        let first = self.evaluation.all.greedy.first()?;
        (*first < SELDOM).then(|| {
            format!(
                "fewer than {SELDOM} of its first drafts are accepted on prompts that were held out, which seldom pays: \
                 more prompts (--prompts, --own-prompts) or epochs make it better"
            )
        })
    }

    /// Size and acceptance by domain, as a table of plain text.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} numbers, {:.1} MB\n\n{:<16} {:>7}  {:<34} {:<34}\n",
            self.parameters,
            self.file_bytes as f64 / 1e6,
            "held out",
            "rounds",
            "accepted by place, temperature 0",
            "temperature 0.8"
        );
        let all = "all".to_owned();
        for (domain, a) in self.evaluation.domains.iter().chain([(&all, &self.evaluation.all)]) {
            text += &format!("{domain:<16} {:>7}  {:<34} {:<34}\n", a.rounds, places(&a.greedy), places(&a.sampled));
        }
        text
    }
}

/// Trains an exit head for the model at `path`, and writes its file.
///
/// # Errors
/// The model cannot be loaded, an option does not fit it, a prompt file cannot be used, the working
/// folder has files of another run, or the caller stopped it.
pub fn train_head(
    path: &Path,
    work: &WorkFolder,
    options: &HeadTrainingOptions,
    control: &dyn TrainingControl,
) -> Result<TrainedHead, TrainingError> {
    let setup = DraftSetup { exit_head: ExitHeadSource::Off, ..DraftSetup::default() };
    let loaded = LoadedModel::open_with(path, options.threads, &setup);
    let loaded = loaded.map_err(|source| TrainingError::Load { path: path.to_owned(), source: Box::new(source) })?;
    let engine_options = EngineOptions {
        threads: options.threads,
        context: Some(options.max_length.saturating_add(1).min(loaded.info().context)),
        kv_bytes: Some(KV_BYTES),
        max_batch: BATCH,
        ..EngineOptions::default()
    };
    let engine = Engine::open_with(&loaded, &engine_options)?;
    let plan = head_plan(options, &loaded)?;

    let answers = answers(&engine, options, work, control)?;
    let corpus = Arc::new(corpus(answers, engine.context())?);
    let ids = frequent_tokens(&corpus, options.draft_vocab, &end_tokens(&loaded));
    let covered = coverage(&corpus, &ids);
    let answered: usize = corpus.texts.iter().map(|text| text.answer().len()).sum();
    control.training_note(&TrainingNote::Line(format!(
        "{} answers of {answered} tokens; the {} tokens of the draft vocabulary cover {}",
        corpus.texts.len(),
        ids.len(),
        shares(&covered)
    )));
    let cache = states(&engine, &loaded, &corpus, &plan, work, control)?;
    let threads = engine.threads();
    drop(engine); // its threads and its cache are not needed any more

    let mut trainer = HeadTrainer::new(loaded.model().clone(), corpus, cache, ids, train_options(options, plan))?;
    let mut before = String::new();
    if let Some(head) = &options.from {
        let card = trainer.start_from(head)?;
        before = format!("; before that, {}", card.data);
    }
    let checkpoint = work.file("checkpoint");
    if checkpoint.exists() {
        trainer.resume(&checkpoint).map_err(|e| work.blame(e))?;
        let (step, steps) = trainer.steps();
        control.training_note(&TrainingNote::Resumed { step, steps });
    }
    let evaluation = train(&mut trainer, &checkpoint, threads, control)?;
    let card = ExitHeadCard {
        model: loaded.info().name.clone().unwrap_or_else(|| options.model.clone()),
        model_fingerprint: loaded.fingerprint().to_owned(),
        coverage: covered,
        acceptance: evaluation.domains.iter().map(|(domain, a)| (domain.clone(), a.greedy.clone())).collect(),
        data: format!("{answered} tokens of the model's own answers to {}{before}", sources(options)),
        command: options.command.clone(),
        ..ExitHeadCard::default()
    };
    let precision = if options.bf16 { HeadPrecision::Bf16 } else { HeadPrecision::Q8_0 };
    trainer.write_head(&options.out, card, precision)?;
    let file_bytes = std::fs::metadata(&options.out).map_or(0, |m| m.len());
    Ok(TrainedHead { evaluation, parameters: trainer.parameters(), file_bytes })
}

fn head_plan(options: &HeadTrainingOptions, loaded: &LoadedModel) -> Result<HeadPlan, TrainingError> {
    let info = loaded.info();
    let n = info.n_layers;
    let wrong = |option, value| TrainingError::Option { option, value, why: format!("the model has {n} layers") };
    if options.head_layer >= n {
        return Err(wrong("head-layer", options.head_layer));
    }
    let mut features = match &options.features {
        Some(features) => features.clone(),
        None => vec![(2 * n).div_ceil(3).min(n), n],
    };
    if let Some(layer) = features.iter().find(|l| **l > n) {
        return Err(wrong("features", *layer));
    }
    features.sort_unstable();
    Ok(HeadPlan { exit_layer: options.head_layer, features, ffn_dim: options.ffn.unwrap_or(info.ffn_dim) })
}

fn train_options(options: &HeadTrainingOptions, plan: HeadPlan) -> HeadOptions {
    HeadOptions {
        epochs: f64::from(options.epochs),
        batch_tokens: options.batch,
        rollout: options.rollout,
        schedule: TrainingSchedule {
            learning_rate: options.rate,
            rollout_from: options.rollout_from,
            ..TrainingSchedule::default()
        },
        seed: options.seed,
        ..HeadOptions::new(plan)
    }
}

/// The model's answers to the prompts of the files and to its own.
fn answers(
    engine: &Engine,
    options: &HeadTrainingOptions,
    work: &WorkFolder,
    control: &dyn TrainingControl,
) -> Result<Vec<StoredAnswer>, TrainingError> {
    let own = options.own_prompts.unwrap_or(if options.prompts.is_empty() { OWN_PROMPTS } else { 0 });
    let mut cases: Vec<PromptCase> = Vec::new();
    for file in &options.prompts {
        cases.extend(prompts::load(Some(file), options.limit)?);
    }
    let chat = PromptStyle::of(false, engine.info()) == PromptStyle::Chat;
    if own > 0 {
        if !chat {
            return Err(TrainingError::NoChatTemplate);
        }
        let written = own_prompts::write(engine, own, options.seed, &work.file("own-prompts.jsonl"), control)?;
        cases.extend(written.into_iter().map(|text| PromptCase::of_text("own", text)));
    }
    if cases.is_empty() {
        return Err(TrainingError::NoPrompts);
    }
    let style = |i: usize| if chat && share(i, 1) >= options.plain { PromptStyle::Chat } else { PromptStyle::Plain };
    let sampling = |i: usize| match share(i, 2) < options.sampled {
        true => SamplingParams {
            temperature: 0.8,
            seed: Some(options.seed.wrapping_add(i as u64)),
            ..SamplingParams::default()
        },
        false => SamplingParams::default(),
    };
    let task = |(i, case): (usize, &PromptCase)| AnswerTask {
        domain: case.category.clone(),
        prompt: case.prompt(style(i)),
        sampling: sampling(i),
        max_tokens: options.max_tokens,
    };
    let tasks: Vec<AnswerTask> = cases.iter().enumerate().map(task).collect();
    generate(engine, "answering prompts", &tasks, &work.file("answers.jsonl"), control)
}

/// A number in [0, 1) that belongs to `i`: evenly spread, and another one for each purpose.
fn share(i: usize, purpose: u64) -> f32 {
    let z =
        (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let z = (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 40) as f32 / (1u64 << 24) as f32
}

fn corpus(answers: Vec<StoredAnswer>, longest: usize) -> Result<Corpus, TrainingError> {
    let text = |answer: StoredAnswer| TrainingText {
        domain: answer.domain,
        prompt_len: answer.prompt.len(),
        tokens: answer.prompt.into_iter().chain(answer.tokens).collect(),
    };
    let mut corpus = Corpus { texts: answers.into_iter().map(text).collect() };
    corpus.cut(longest);
    if corpus.texts.is_empty() { Err(TrainingError::NoAnswers) } else { Ok(corpus) }
}

fn end_tokens(loaded: &LoadedModel) -> Vec<TokenId> {
    let vocab = loaded.info().vocab;
    let ends = loaded.tokenizer().map(|t| t.eos_ids().to_vec()).unwrap_or_default();
    ends.into_iter().filter(|id| (*id as usize) < vocab).collect()
}

/// The hidden states of every text, from the engine.
struct EngineStates<'e>(&'e Engine);

impl HiddenStateSource for EngineStates<'_> {
    fn states(
        &mut self,
        tokens: &[TokenId],
        layers: &[usize],
    ) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(States::new(self.0, layers).of(tokens)?)
    }
}

fn states(
    engine: &Engine,
    loaded: &LoadedModel,
    corpus: &Corpus,
    plan: &HeadPlan,
    work: &WorkFolder,
    control: &dyn TrainingControl,
) -> Result<HiddenStateCache, TrainingError> {
    const STAGE: &str = "computing hidden states";
    let (layers, dim) = (plan.layers(engine.n_layers()), loaded.info().dim);
    let bar = Stage::begin(control, STAGE, corpus.texts.len());
    let (started, mut timer) = (Instant::now(), ReportTimer::start());
    let (mut first, mut shown, mut reached) = (None, 0, (0, 0));
    let stopped = control.stop_signal();
    let mut progress = |done: usize, of: usize| {
        reached = (done, of);
        let first = *first.get_or_insert(done);
        (shown..done).for_each(|_| bar.step());
        shown = done;
        if timer.is_due() {
            let each = started.elapsed().as_secs_f64() / (done - first).max(1) as f64;
            let seconds_left = each * (of - done) as f64;
            let note = TrainingNote::Progress { stage: STAGE, done, of, tokens_per_second: None, seconds_left };
            control.training_note(&note);
        }
        !stopped()
    };
    let path = work.file("states");
    let mut source = EngineStates(engine);
    let cache = HiddenStateCache::fill(&path, corpus, loaded.fingerprint(), dim, &layers, &mut source, &mut progress);
    let (done, of) = reached;
    cache.map_err(|e| work.blame(e))?.ok_or(TrainingError::Stopped { done, of, unit: TrainingUnit::States })
}

/// Trains to the end.
fn train(
    trainer: &mut HeadTrainer,
    checkpoint: &Path,
    threads: usize,
    control: &dyn TrainingControl,
) -> Result<HeadEvaluation, TrainingError> {
    let run = HeadRun {
        threads,
        checkpoint: Some(checkpoint),
        evaluate_every: 500,
        evaluated_drafts: JUDGED,
        save_every: 200,
    };
    let (mut timer, mut skipped) = (ReportTimer::start(), 0);
    let stopped = control.stop_signal();
    let mut on_event = |event: &HeadTrainingEvent| {
        match event {
            HeadTrainingEvent::Step(step) => {
                skipped += usize::from(step.skipped);
                if timer.is_due() {
                    control.training_note(&TrainingNote::Line(step_line(step, skipped)));
                }
            }
            HeadTrainingEvent::Evaluated { step, evaluation } => {
                let line = format!("step {step}: {}", evaluation_line(evaluation));
                control.training_note(&TrainingNote::Line(line));
            }
            HeadTrainingEvent::Saved { step, path } => {
                control.training_note(&TrainingNote::Saved { step: *step, path: path.clone() });
            }
        }
        if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match trainer.run(&run, &mut on_event)? {
        TrainingResult::Finished(Some(evaluation)) => Ok(evaluation),
        TrainingResult::Finished(None) => Ok(trainer.evaluate(JUDGED, threads)?),
        TrainingResult::Stopped => {
            let (done, of) = trainer.steps();
            Err(TrainingError::Stopped { done, of, unit: TrainingUnit::Steps })
        }
    }
}

fn step_line(step: &HeadStep, skipped: usize) -> String {
    let overlap = step.overlap.first().copied().unwrap_or(f64::NAN);
    let mut line = format!(
        "step {} of {}: loss {:.3}, first draft accepted {overlap:.2} in its own batch, {:.0} tokens a second, {} left",
        step.step,
        step.steps,
        step.loss,
        step.tokens_per_second,
        time_words(step.seconds_left)
    );
    if skipped > 0 {
        line += &format!(" ({skipped} batches skipped: their loss was not finite)");
    }
    line
}

fn places(acceptance: &[f64]) -> String {
    acceptance.iter().map(|a| format!("{a:.2}")).collect::<Vec<_>>().join(" ")
}

fn evaluation_line(evaluation: &HeadEvaluation) -> String {
    let domain = |(name, a): (&String, &HeldOutAcceptance)| format!("{name} {}", places(&a.greedy));
    let domains: Vec<String> = evaluation.domains.iter().map(domain).collect();
    format!("held-out acceptance by place {}; {}", places(&evaluation.all.greedy), domains.join(", "))
}

fn shares(covered: &BTreeMap<String, f64>) -> String {
    covered.iter().map(|(domain, share)| format!("{:.1}% of {domain}", share * 100.0)).collect::<Vec<_>>().join(", ")
}

fn sources(options: &HeadTrainingOptions) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut sources: Vec<String> = options.prompts.iter().map(name).collect();
    if options.own_prompts.unwrap_or(usize::from(options.prompts.is_empty())) > 0 {
        sources.push("prompts that it wrote itself".to_owned());
    }
    sources.join(", ")
}
