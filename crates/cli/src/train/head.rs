//! `selfspec train head`: answers, hidden states, training, and the head's file. Every stage leaves what it made in the working folder, so that a run
//! that was ended goes on where it was.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use selfspec_engine::{
    DraftSetup, Engine, EngineOptions, ExitHeadCard, ExitHeadSource, Loaded, SamplingParams, TokenId,
};
use selfspec_train::{
    Corpus, HeadEvaluation, HeadOptions, HeadPlan, HeadPrecision, HeadRun, HeadStep, HeadTrainer, HeadTrainingEvent,
    HeldOutAcceptance, HiddenStateCache, HiddenStateSource, TrainingResult, TrainingSchedule, TrainingText, coverage,
    frequent_tokens,
};

use super::answers::{Answer, Job, generate, minutes};
use super::work::{GO_ON, WorkFolder};
use super::{own_prompts, states::States};
use crate::args::{DataArgs, TrainHeadArgs};
use crate::failure::{Interrupted, usage};
use crate::output::{self, Ui};
use crate::progress::Steps;
use crate::signals::Pausing;
use crate::{model, out_path};
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, PromptCase};

/// Prompts that the model writes where it is given none.
const OWN_PROMPTS: usize = 2000;
/// Sequences of a step while answers are generated.
const BATCH: usize = 48;
/// Bytes of KV cache meanwhile.
const KV_BYTES: usize = 2 << 30;
/// How often training says how far it is.
const SAY: Duration = Duration::from_secs(30);
/// Acceptance of first drafts below which drafting seldom pays.
const SELDOM: f64 = 0.35;
/// Drafts of a round that the report judges.
const JUDGED: usize = 5;

pub(crate) fn run(args: &TrainHeadArgs, ui: &Ui) -> anyhow::Result<()> {
    out_path::check("--out", &args.out, true)?;
    let work = WorkFolder::open(args.work.as_deref(), &args.out)?;
    let path = model::locate(&args.model.model, ui)?;
    let setup = DraftSetup { exit_head: ExitHeadSource::Off, ..DraftSetup::default() };
    let loaded =
        Loaded::open_with(&path, args.threads, &setup).with_context(|| format!("cannot load {}", path.display()))?;
    let options = EngineOptions {
        threads: args.threads,
        context: Some(args.data.max_length.saturating_add(1).min(loaded.info().context)),
        kv_bytes: Some(KV_BYTES),
        max_batch: BATCH,
        ..EngineOptions::default()
    };
    let engine = Engine::open_with(&loaded, &options)?;
    let plan = head_plan(args, &loaded)?;

    let answers = answers(&engine, args, &work, ui)?;
    let corpus = Arc::new(corpus(answers, engine.context())?);
    let ids = frequent_tokens(&corpus, args.head.draft_vocab, &end_tokens(&loaded));
    let covered = coverage(&corpus, &ids);
    let answered: usize = corpus.texts.iter().map(|text| text.answer().len()).sum();
    ui.note(&format!(
        "{} answers of {answered} tokens; the {} tokens of the draft vocabulary cover {}",
        corpus.texts.len(),
        ids.len(),
        shares(&covered)
    ));
    let Some(cache) = states(&engine, &loaded, &corpus, &plan, &work, ui)? else { return Err(Interrupted.into()) };
    let threads = engine.threads();
    drop(engine); // its threads and its cache are not needed any more

    let options = train_options(args, plan);
    let mut trainer = HeadTrainer::new(loaded.model().clone(), corpus, cache, ids, options)?;
    let mut before = String::new();
    if let Some(head) = &args.training.from {
        let card = trainer.start_from(head)?;
        before = format!("; before that, {}", card.data);
    }
    let checkpoint = work.file("checkpoint");
    if checkpoint.exists() {
        trainer.resume(&checkpoint).map_err(|e| work.remedy(e))?;
        let (step, steps) = trainer.steps();
        ui.note(&format!("going on from step {step} of {steps}"));
    }
    let Some(evaluation) = train(&mut trainer, &checkpoint, threads, ui)? else { return Err(Interrupted.into()) };
    let card = ExitHeadCard {
        model: loaded.info().name.clone().unwrap_or_else(|| args.model.model.clone()),
        model_fingerprint: loaded.fingerprint().to_owned(),
        coverage: covered,
        acceptance: evaluation.domains.iter().map(|(domain, a)| (domain.clone(), a.greedy.clone())).collect(),
        data: format!("{answered} tokens of the model's own answers to {}{before}", sources(&args.data)),
        command: std::iter::once("selfspec".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
        ..ExitHeadCard::default()
    };
    let precision = if args.head.bf16 { HeadPrecision::Bf16 } else { HeadPrecision::Q8_0 };
    trainer.write_head(&args.out, card, precision)?;
    let size = std::fs::metadata(&args.out).map_or(0, |m| m.len());
    output::print(&report(&evaluation, trainer.parameters(), size))?;
    if evaluation.all.greedy.first().is_some_and(|first| *first < SELDOM) {
        ui.note(&format!(
            "fewer than {SELDOM} of its first drafts are accepted on prompts that were held out, which seldom pays: more prompts (--prompts, --own-prompts) or \
             epochs make it better"
        ));
    }
    ui.note(&work.done());
    ui.note(&format!("{} is ready: selfspec run {} --exit-head {0}", args.out.display(), args.model.model));
    Ok(())
}

fn head_plan(args: &TrainHeadArgs, loaded: &Loaded) -> anyhow::Result<HeadPlan> {
    let info = loaded.info();
    let n = info.n_layers;
    let given = &args.head;
    if given.head_layer >= n {
        return Err(usage(format!("--head-layer {}: the model has {n} layers", given.head_layer), None));
    }
    let features = match &given.features {
        Some(features) => features.0.clone(),
        None => vec![(2 * n).div_ceil(3).min(n), n],
    };
    if let Some(layer) = features.iter().find(|l| **l > n) {
        return Err(usage(format!("--features {layer}: the model has {n} layers"), None));
    }
    let mut features = features;
    features.sort_unstable();
    Ok(HeadPlan { exit_layer: given.head_layer, features, ffn_dim: given.ffn.unwrap_or(info.ffn_dim) })
}

fn train_options(args: &TrainHeadArgs, plan: HeadPlan) -> HeadOptions {
    let given = &args.training;
    HeadOptions {
        epochs: f64::from(given.epochs),
        batch_tokens: given.batch,
        rollout: given.rollout,
        schedule: TrainingSchedule {
            learning_rate: given.rate,
            rollout_from: given.rollout_from,
            ..TrainingSchedule::default()
        },
        seed: given.seed,
        ..HeadOptions::new(plan)
    }
}

/// The model's answers to the prompts of the files and to its own.
fn answers(engine: &Engine, args: &TrainHeadArgs, work: &WorkFolder, ui: &Ui) -> anyhow::Result<Vec<Answer>> {
    let data = &args.data;
    let own = data.own_prompts.unwrap_or(if data.prompts.is_empty() { OWN_PROMPTS } else { 0 });
    let mut cases: Vec<PromptCase> = Vec::new();
    for file in &data.prompts {
        cases.extend(prompts::load(Some(file), data.limit)?);
    }
    let chat = PromptStyle::of(false, engine.info()) == PromptStyle::Chat;
    if own > 0 && !chat {
        return Err(usage(
            "the model has no chat template, so that it cannot write prompts: give it some with --prompts",
            None,
        ));
    }
    if own > 0 {
        let written = own_prompts::write(engine, own, args.training.seed, &work.file("own-prompts.jsonl"), ui)?;
        cases.extend(written.into_iter().map(|text| PromptCase::of_text("own", text)));
    }
    if cases.is_empty() {
        return Err(usage("no prompts: --prompts names a file of them, --own-prompts has the model write some", None));
    }
    let style = |i: usize| if chat && share(i, 1) >= data.plain { PromptStyle::Chat } else { PromptStyle::Plain };
    let sampling = |i: usize| match share(i, 2) < data.sampled {
        true => SamplingParams {
            temperature: 0.8,
            seed: Some(args.training.seed.wrapping_add(i as u64)),
            ..SamplingParams::default()
        },
        false => SamplingParams::default(),
    };
    let jobs: Vec<Job> = cases
        .iter()
        .enumerate()
        .map(|(i, case)| Job {
            domain: case.category.clone(),
            prompt: case.prompt(style(i)),
            sampling: sampling(i),
            max_tokens: data.max_tokens,
        })
        .collect();
    generate(engine, "answering prompts", &jobs, &work.file("answers.jsonl"), ui)
}

/// A number in [0, 1) that belongs to `i`: evenly spread, and another one for each purpose.
fn share(i: usize, purpose: u64) -> f32 {
    let z =
        (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let z = (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 40) as f32 / (1u64 << 24) as f32
}

fn corpus(answers: Vec<Answer>, longest: usize) -> anyhow::Result<Corpus> {
    let text = |answer: Answer| TrainingText {
        domain: answer.domain,
        prompt_len: answer.prompt.len(),
        tokens: answer.prompt.into_iter().chain(answer.tokens).collect(),
    };
    let mut corpus = Corpus { texts: answers.into_iter().map(text).collect() };
    corpus.cut(longest);
    anyhow::ensure!(!corpus.texts.is_empty(), "the model answered nothing that could be learned from");
    Ok(corpus)
}

fn end_tokens(loaded: &Loaded) -> Vec<TokenId> {
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
    loaded: &Loaded,
    corpus: &Corpus,
    plan: &HeadPlan,
    work: &WorkFolder,
    ui: &Ui,
) -> anyhow::Result<Option<HiddenStateCache>> {
    let (layers, dim) = (plan.layers(engine.n_layers()), loaded.info().dim);
    let steps = Steps::new(ui, "computing hidden states", corpus.texts.len() as u64);
    let (started, mut said, mut first) = (Instant::now(), Instant::now(), None);
    let pausing = Pausing::new();
    let mut progress = |done: usize, of: usize| {
        let first = *first.get_or_insert(done);
        steps.set(done as u64);
        if said.elapsed() >= SAY {
            said = Instant::now();
            let each = started.elapsed().as_secs_f64() / (done - first).max(1) as f64;
            let left = minutes(each * (of - done) as f64);
            ui.note(&format!("computing hidden states: {done} of {of}, {left} left"));
        }
        if pausing.interrupted() {
            ui.note(&format!("stopped after the hidden states of {done} of {of} answers; {GO_ON}"));
        }
        !pausing.interrupted()
    };
    let path = work.file("states");
    let mut source = EngineStates(engine);
    HiddenStateCache::fill(&path, corpus, loaded.fingerprint(), dim, &layers, &mut source, &mut progress)
        .map_err(|e| work.remedy(e))
}

/// Trains to the end; `None` if the user ended it before.
fn train(
    trainer: &mut HeadTrainer,
    checkpoint: &Path,
    threads: usize,
    ui: &Ui,
) -> anyhow::Result<Option<HeadEvaluation>> {
    let run = HeadRun {
        threads,
        checkpoint: Some(checkpoint),
        evaluate_every: 500,
        evaluated_drafts: JUDGED,
        save_every: 200,
    };
    let mut said = Instant::now();
    let mut skipped = 0;
    let pausing = Pausing::new();
    let mut tell = |event: &HeadTrainingEvent| {
        match event {
            HeadTrainingEvent::Step(step) => {
                skipped += usize::from(step.skipped);
                if said.elapsed() >= SAY {
                    said = Instant::now();
                    ui.note(&step_line(step, skipped));
                }
            }
            HeadTrainingEvent::Evaluated { step, evaluation } => {
                ui.note(&format!("step {step}: {}", judgement_line(evaluation)))
            }
            HeadTrainingEvent::Saved { step, path } => {
                ui.detail(&format!("step {step} is saved in {}", path.display()))
            }
        }
        if pausing.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match trainer.run(&run, &mut tell)? {
        TrainingResult::Finished(Some(evaluation)) => Ok(Some(evaluation)),
        TrainingResult::Finished(None) => Ok(Some(trainer.evaluate(JUDGED, threads)?)),
        TrainingResult::Stopped => {
            let (step, steps) = trainer.steps();
            ui.note(&format!("stopped after step {step} of {steps}; {GO_ON}"));
            Ok(None)
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
        minutes(step.seconds_left)
    );
    if skipped > 0 {
        line += &format!(" ({skipped} batches skipped: their loss was not finite)");
    }
    line
}

fn places(acceptance: &[f64]) -> String {
    acceptance.iter().map(|a| format!("{a:.2}")).collect::<Vec<_>>().join(" ")
}

fn judgement_line(evaluation: &HeadEvaluation) -> String {
    let domain = |(name, a): (&String, &HeldOutAcceptance)| format!("{name} {}", places(&a.greedy));
    let domains: Vec<String> = evaluation.domains.iter().map(domain).collect();
    format!("held-out acceptance by place {}; {}", places(&evaluation.all.greedy), domains.join(", "))
}

fn shares(covered: &BTreeMap<String, f64>) -> String {
    covered.iter().map(|(domain, share)| format!("{:.1}% of {domain}", share * 100.0)).collect::<Vec<_>>().join(", ")
}

fn sources(data: &DataArgs) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut sources: Vec<String> = data.prompts.iter().map(name).collect();
    if data.own_prompts.unwrap_or(usize::from(data.prompts.is_empty())) > 0 {
        sources.push("prompts that it wrote itself".to_owned());
    }
    sources.join(", ")
}

/// The table at the end.
fn report(evaluation: &HeadEvaluation, parameters: usize, size: u64) -> String {
    let mut text = format!(
        "{parameters} numbers, {:.1} MB\n\n{:<16} {:>7}  {:<34} {:<34}\n",
        size as f64 / 1e6,
        "held out",
        "rounds",
        "accepted by place, temperature 0",
        "temperature 0.8"
    );
    let all = "all".to_owned();
    for (domain, a) in evaluation.domains.iter().chain([(&all, &evaluation.all)]) {
        text += &format!("{domain:<16} {:>7}  {:<34} {:<34}\n", a.rounds, places(&a.greedy), places(&a.sampled));
    }
    text
}
