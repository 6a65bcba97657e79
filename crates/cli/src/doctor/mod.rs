//! `selfspec doctor`: what ails speculation with a model, on this machine, on the user's prompts.
//!
//! Checks of correctness come first, because what follows means nothing without them:
//!
//! 1. Rounds by hand beside plain decoding: length, content and pages of the cache (`rounds.rs`).
//! 2. The prompts with drafts and without: the same tokens (`outputs.rs`).
//! 3. The exit path: norm and head in full precision against a draft's logits (`exit_path.rs`).
//!
//! Then what speed depends on: the cost of a draft against what is believed of it, and the speed-up that is had against the one predicted
//! (`costs.rs`); acceptance against what is on record (`domain.rs`), and from the beginning of an answer to its end.

mod check;
mod costs;
mod domain;
mod exit_path;
mod outputs;
mod report;
mod rounds;
mod subject;

use std::sync::Arc;

use anyhow::Context;
use selfspec_engine::{Engine, EngineOptions, Fault, Loaded, SpeculationParams};

use crate::args::{DoctorArgs, DoctorFormat, HeadArgs, Plant};
use crate::failure::{Told, usage};
use crate::model;
use crate::output::{self, Ui};
use check::{Check, Verdict};
use costs::Costs;
use domain::Record;
use outputs::Fared;
use report::Report;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, PromptCase};
use subject::Subject;

/// Tokens drafted a round while acceptance is looked at: as many as a tuning drafts.
const DRAFT_LEN: usize = crate::tune::sweep::DRAFT_LEN;
/// Requests of a step: acceptance and output do not depend on company.
const TOGETHER: usize = 8;
/// Tokens that a prompt must leave room for.
const ANSWER: usize = 8;
/// Texts whose exits are looked at.
const EXITS: usize = 3;
/// Prompts of kinds that nothing here was made for.
const STRANGE: &str = include_str!("strange.jsonl");

pub(crate) fn run(args: &DoctorArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts(args, ui)?;
    let load = |heads: &HeadArgs| model::load(&args.model.model, args.compute.threads, heads, ui);
    let mut heads = args.compute.heads.clone();
    // What is planted must be found whatever a tuning chose. But the record of another domain may be the tuning's.
    heads.no_tuning |= args.plant.is_some();
    let mut loaded = load(&heads)?;
    if args.plant == Some(Plant::Domain) && loaded.draft_heads().exit.is_none() {
        loaded = load(&args.compute.heads)?;
    }
    let style = PromptStyle::of(args.raw, loaded.info());
    let together = engine(&loaded, args, TOGETHER)?;
    let prompts = fitting(&together, prompts, style, ui)?;
    let tuning = loaded.tuning();
    let subject = Subject::of(&together, tuning)?;
    let record = Record::of(&subject, tuning, loaded.draft_heads().exit.as_ref().map(|head| head.card()));
    if args.plant == Some(Plant::Domain) && record.is_none() {
        let hint = "`selfspec tune` keeps one with its choice, `selfspec train head` in the head's card";
        return Err(usage("--plant domain: no acceptance is on record to compare with", hint));
    }

    let off = SpeculationParams::off();
    let answers = |speculation, what| outputs::run(&together, &prompts, style, args.max_tokens, speculation, what, ui);
    let plain = outputs::plain_error(&prompts, answers(&off, "plain answers")?)?;
    let spec = answers(&subject.always(DRAFT_LEN), "answers with drafts")?;
    let texts = outputs::texts(&together, &prompts, style, &plain)?;
    let mut checks = correctness(&together, &subject, &texts, outputs::equality(&prompts, &plain, &spec))?;
    let correct = checks.len();
    drop(together);

    let fared = Fared::of(&prompts, &spec);
    let rollback = checks[0].verdict == Verdict::Fault;
    if rollback {
        checks.extend(
            ["cost of a draft", "speed-up", "long context"].map(|name| Check::open(name, "the rollback is wrong")),
        );
    } else {
        checks.extend(speed(&loaded, args, &subject, &fared, &prompts, style, ui)?);
    }
    checks.push(domain::check(record.as_ref(), &fared));
    checks.push(outputs::decay(&spec));
    check::settle(&mut checks, correct);
    conclude(args, &subject, prompts.len(), checks, ui)
}

/// The prompts asked for, spread over the file; those of strange kinds where they are planted.
fn prompts(args: &DoctorArgs, ui: &Ui) -> anyhow::Result<Vec<PromptCase>> {
    if let (Some(Plant::Domain), Some(path)) = (args.plant, &args.prompts) {
        ui.note(&format!("{} is left aside: the prompts of --plant domain stand in its place", path.display()));
    }
    let all = match args.plant {
        Some(Plant::Domain) => prompts::parse(STRANGE.as_bytes(), "the planted prompts")?,
        _ => prompts::load(args.prompts.as_deref(), None)?,
    };
    let (n, limit) = (all.len(), args.limit.min(all.len()));
    Ok((0..limit).map(|i| all[i * n / limit].clone()).collect())
}

/// The prompts that leave room for an answer.
fn fitting(engine: &Engine, prompts: Vec<PromptCase>, style: PromptStyle, ui: &Ui) -> anyhow::Result<Vec<PromptCase>> {
    let (all, context, mut longest) = (prompts.len(), engine.context(), None);
    let mut kept = Vec::new();
    for case in prompts {
        let tokens =
            engine.encode(&case.prompt(style)).with_context(|| format!("the prompt of line {}", case.line))?.len();
        if tokens + ANSWER <= context {
            kept.push(case);
        } else {
            longest = longest.max(Some((tokens, case.line)));
        }
    }
    if let Some((tokens, line)) = longest {
        let long = format!("the prompt of line {line} has {tokens} tokens, the model takes {context} positions");
        anyhow::ensure!(!kept.is_empty(), "no prompt leaves room for an answer of {ANSWER} tokens: {long}");
        ui.note(&format!(
            "{} of {all} prompts are left out, which leave no room for an answer: {long}",
            all - kept.len()
        ));
    }
    Ok(kept)
}

fn engine(loaded: &Arc<Loaded>, args: &DoctorArgs, max_batch: usize) -> anyhow::Result<Engine> {
    let fault = match args.plant {
        Some(Plant::Norm) => Some(Fault::Backend(selfspec_engine::BackendFault::ExitNorm)),
        Some(Plant::Rollback) => Some(Fault::Backend(selfspec_engine::BackendFault::Rollback)),
        Some(Plant::Cost) => Some(Fault::DraftCost),
        Some(Plant::Domain) | None => None,
    };
    let options = EngineOptions { max_batch, fault, ..args.compute.engine() };
    Ok(Engine::open_with(loaded, &options)?)
}

/// Rollback, output, exit path, what rounds leave in the cache, memory.
fn correctness(
    engine: &Engine,
    subject: &Subject,
    texts: &[rounds::Text],
    output: Check,
) -> anyhow::Result<Vec<Check>> {
    let seen = match &subject.path {
        Some(path) => rounds::run(engine, path, texts).context("rounds by hand")?,
        None => None,
    };
    let [mut rollback, cache, memory] = match (&seen, &subject.path) {
        (Some(seen), _) => rounds::judge(seen),
        (None, Some(_)) => rounds::unseen("no answer is long enough for a round: longer ones (-n) are"),
        (None, None) => rounds::unseen("the model has one layer and no exit head: nothing but copying drafts"),
    };
    let tokens: Vec<_> = texts.iter().take(EXITS).map(|text| text.tokens.clone()).collect();
    let exit = exit_path::check(engine, subject.exit(engine.n_layers()).as_ref(), &tokens).context("the exit path")?;
    let is_rollback = |check: &Check| check.finding.as_ref().is_some_and(|f| f.cause == "rollback");
    let mut output = output;
    if is_rollback(&output) {
        // What the requests met and what the rounds by hand show are one fault.
        let by_hand = if is_rollback(&rollback) { format!("; by hand: {}", rollback.words) } else { String::new() };
        rollback = rounds::short_rollback(format!("{}{by_hand}", output.words));
        output = Check::open(output.name, "the rollback is wrong");
    }
    Ok(vec![rollback, output, exit, cache, memory])
}

/// Cost of a draft, speed-up, long context: alone on the machine's cores.
fn speed(
    loaded: &Arc<Loaded>,
    args: &DoctorArgs,
    subject: &Subject,
    fared: &Fared,
    prompts: &[PromptCase],
    style: PromptStyle,
    ui: &Ui,
) -> anyhow::Result<Vec<Check>> {
    let alone = engine(loaded, args, 1)?;
    let contexts = contexts(&args.contexts, alone.context());
    let mut all = Vec::new();
    for (i, context) in contexts.iter().enumerate() {
        let times = if i == 0 { costs::TIMES } else { 1 };
        all.push(Costs::measure(&alone, subject.path.as_ref(), *context, times).context("measuring costs")?);
    }
    let Some(first) = all.first() else {
        let why = format!("the model's context of {} positions is too short to measure in", alone.context());
        return Ok(["cost of a draft", "speed-up", "long context"].map(|name| Check::open(name, why.clone())).to_vec());
    };
    let tuned_c = loaded.tuning().and_then(|tuning| tuning.c);
    let speed = costs::speed(&alone, subject, first, fared, prompts, (style, args.max_tokens), ui)?;
    Ok(vec![
        costs::cost_of_a_draft(first, tuned_c, fared),
        costs::judge_speed(&speed, subject, fared),
        costs::long_context(&all, fared),
    ])
}

/// The contexts that the model has room for; a shorter one where it has room for none.
fn contexts(asked: &[usize], most: usize) -> Vec<usize> {
    let fits = |context: usize| context.saturating_add(costs::ROWS) < most;
    let mut contexts: Vec<usize> = Vec::new();
    for context in asked.iter().copied().filter(|context| fits(*context)) {
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    if contexts.is_empty() && fits(most / 2) {
        contexts.push(most / 2);
    }
    contexts
}

fn conclude(args: &DoctorArgs, subject: &Subject, prompts: usize, checks: Vec<Check>, ui: &Ui) -> anyhow::Result<()> {
    let planted = args.plant.map(|plant| match plant {
        Plant::Norm => "norm",
        Plant::Rollback => "rollback",
        Plant::Cost => "cost",
        Plant::Domain => "domain",
    });
    let report = Report {
        model: &args.model.model,
        drafter: subject.name(),
        prompts,
        max_tokens: args.max_tokens,
        planted,
        checks,
    };
    match args.output {
        DoctorFormat::Md => output::print(&report.markdown())?,
        DoctorFormat::Json => output::print_json(&report.json())?,
    }
    if report.found() == Some(false) {
        ui.error("the planted fault is not the first that was named");
        return Err(Told.into());
    }
    if report.healthy() { Ok(()) } else { Err(Told.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_those_that_fit_or_half_of_what_there_is() {
        assert_eq!(contexts(&[256, 4096, 256], 8192), [256, 4096]);
        assert_eq!(contexts(&[256, 4096], 512), [256]);
        assert_eq!(contexts(&[256, 4096], 64), [32]);
        assert!(contexts(&[256], 12).is_empty());
    }

    #[test]
    fn strange_prompts_are_of_two_kinds() {
        let cases = prompts::parse(STRANGE.as_bytes(), "strange").expect("valid");
        for kind in ["foreign", "noise"] {
            assert_eq!(cases.iter().filter(|c| c.category == kind).count(), 6);
        }
    }
}
