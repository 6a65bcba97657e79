//! The checks in their order.

use std::sync::Arc;

use selfspec_engine::{Engine, EngineFault, EngineOptions, LoadedModel};
use selfspec_speculate::SpeculationParams;

use super::check::{CheckResult, DoctorCheck, withdraw_consequences};
use super::costs::{self, CostsAtContext};
use super::domain::{RecordedAcceptance, check_domain};
use super::examined::ExaminedDrafter;
use super::exit_path::check_exit_path;
use super::outputs::{self, DoctorAnswer, DraftAcceptance};
use super::report::{DoctorReport, PlantedFault};
use super::rounds::{self, AnswerText};
use crate::error::LabError;
use crate::fixed_drafts::DRAFT_LEN;
use crate::progress::{LabNote, Stage, StageProgress};
use crate::prompts::{self, PromptCase, PromptStyle};

/// Requests of a step: acceptance and output do not depend on other requests.
const TOGETHER: usize = 8;
/// Tokens that a prompt must leave room for.
const ANSWER: usize = 8;
/// Texts whose exits are checked.
const EXITS: usize = 3;
/// Prompts of kinds that no tuning and no training saw.
const STRANGE: &str = include_str!("strange.jsonl");

/// What a diagnosis examines.
#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// Engines to examine; the diagnosis sets their `max_batch` and their `fault`.
    pub engine: EngineOptions,
    /// How the prompts are given to the model.
    pub style: PromptStyle,
    /// Most tokens to generate for each prompt.
    pub max_tokens: usize,
    /// Contexts at which costs are measured, in positions; the first is taken for the prompts.
    /// Shape: (context).
    pub contexts: Vec<usize>,
    /// A fault to plant, to show that it is found. [`PlantedFault::Domain`] lies in the prompts,
    /// see [`strange_prompts`].
    pub plant: Option<PlantedFault>,
}

/// Prompts of foreign languages and of noise, for [`PlantedFault::Domain`].
pub fn strange_prompts() -> Vec<PromptCase> {
    prompts::parse(STRANGE.as_bytes(), "the planted prompts").expect("a test reads the planted prompts")
}

/// Examines a model.
///
/// # Errors
/// No prompt leaves room for an answer, a prompt cannot be decoded plainly, the engine fails, or
/// [`PlantedFault::Domain`] is planted and no acceptance is on record.
pub fn doctor(
    loaded: &Arc<LoadedModel>,
    prompts: Vec<PromptCase>,
    options: &DoctorOptions,
    progress: &dyn StageProgress,
) -> Result<DoctorReport, LabError> {
    if prompts.is_empty() {
        return Err(LabError::NoPrompts);
    }
    let together = engine(loaded, options, TOGETHER)?;
    let prompts = prompts_that_fit(&together, prompts, options.style, progress)?;
    let tuning = loaded.tuning();
    let examined = ExaminedDrafter::of(&together, tuning)?;
    let card = loaded.draft_heads().exit.as_ref().map(|head| head.card());
    let record = RecordedAcceptance::of(&examined, tuning, card);
    if options.plant == Some(PlantedFault::Domain) && record.is_none() {
        return Err(LabError::NoRecordedAcceptance);
    }

    let answers = |speculation: &SpeculationParams, name: &str| -> Result<Vec<DoctorAnswer>, LabError> {
        let stage = Stage::begin(progress, name, prompts.len());
        outputs::run(&together, &prompts, options.style, options.max_tokens, speculation, &stage)
    };
    let plain = outputs::whole_answers(&prompts, answers(&SpeculationParams::off(), "plain answers")?)?;
    let spec = answers(&examined.always(DRAFT_LEN), "answers with drafts")?;
    let texts = outputs::texts(&together, &prompts, options.style, &plain)?;
    let output = outputs::equality(&prompts, &plain, &spec);
    let mut checks = correctness(&together, &examined, &texts, output)?;
    let correct = checks.len();
    drop(together);

    let acceptance = DraftAcceptance::of(&prompts, &spec);
    if checks[0].result == CheckResult::Fault {
        checks.extend(SPEED_CHECKS.map(|name| DoctorCheck::not_checked(name, "the rollback is wrong")));
    } else {
        checks.extend(speed(loaded, options, &examined, &acceptance, &prompts, progress)?);
    }
    checks.push(check_domain(record.as_ref(), &acceptance));
    checks.push(outputs::decay(&spec));
    withdraw_consequences(&mut checks, correct);
    let (drafter, prompts) = (examined.name(), prompts.len());
    Ok(DoctorReport { drafter, prompts, max_tokens: options.max_tokens, planted: options.plant, checks })
}

/// The checks of [`speed`].
const SPEED_CHECKS: [&str; 3] = ["cost of a draft", "speed-up", "long context"];

/// The prompts that leave room for an answer.
fn prompts_that_fit(
    engine: &Engine,
    prompts: Vec<PromptCase>,
    style: PromptStyle,
    progress: &dyn StageProgress,
) -> Result<Vec<PromptCase>, LabError> {
    let (all, context, mut longest) = (prompts.len(), engine.context(), None);
    let mut kept = Vec::new();
    for case in prompts {
        let failed = |source| LabError::Prompt { line: case.line, source };
        let tokens = engine.encode(&case.prompt(style)).map_err(failed)?.len();
        if tokens + ANSWER <= context {
            kept.push(case);
        } else {
            longest = longest.max(Some((tokens, case.line)));
        }
    }
    if let Some((tokens, line)) = longest {
        if kept.is_empty() {
            return Err(LabError::NoRoom { answer: ANSWER, line, tokens, context });
        }
        progress.note(&LabNote::LongPrompts { left_out: all - kept.len(), all, line, tokens, context });
    }
    Ok(kept)
}

fn engine(loaded: &Arc<LoadedModel>, options: &DoctorOptions, max_batch: usize) -> Result<Engine, LabError> {
    let fault = match options.plant {
        Some(PlantedFault::Norm) => Some(EngineFault::Backend(selfspec_model::BackendFault::ExitNorm)),
        Some(PlantedFault::Rollback) => Some(EngineFault::Backend(selfspec_model::BackendFault::Rollback)),
        Some(PlantedFault::Cost) => Some(EngineFault::DraftCost),
        Some(PlantedFault::Domain) | None => None,
    };
    Ok(Engine::open_with(loaded, &EngineOptions { max_batch, fault, ..options.engine.clone() })?)
}

/// Rollback, output, exit path, the cache after rounds, memory.
fn correctness(
    engine: &Engine,
    examined: &ExaminedDrafter,
    texts: &[AnswerText],
    mut output: DoctorCheck,
) -> Result<Vec<DoctorCheck>, LabError> {
    let seen = match &examined.path {
        Some(path) => rounds::run(engine, path, texts).map_err(LabError::in_stage("rounds by hand"))?,
        None => None,
    };
    let [mut rollback, cache, memory] = match (&seen, &examined.path) {
        (Some(seen), _) => rounds::judge_rounds(seen),
        (None, Some(_)) => rounds::unchecked_rounds("no answer is long enough for a round: longer ones (-n) are"),
        (None, None) => {
            rounds::unchecked_rounds("the model has one layer and no exit head: nothing but copying drafts")
        }
    };
    let tokens: Vec<_> = texts.iter().take(EXITS).map(|text| text.tokens.clone()).collect();
    let plan = examined.exit(engine.n_layers());
    let exit = check_exit_path(engine, plan.as_ref(), &tokens).map_err(LabError::in_stage("the exit path"))?;
    let is_rollback = |check: &DoctorCheck| check.finding.as_ref().is_some_and(|f| f.cause == "rollback");
    if is_rollback(&output) {
        // The requests and the rounds by hand show the same fault.
        let by_hand = if is_rollback(&rollback) { format!("; by hand: {}", rollback.words) } else { String::new() };
        rollback = rounds::short_rollback(format!("{}{by_hand}", output.words));
        output = DoctorCheck::not_checked(output.name, "the rollback is wrong");
    }
    Ok(vec![rollback, output, exit, cache, memory])
}

/// Cost of a draft, speed-up, long context: alone on the machine's cores.
fn speed(
    loaded: &Arc<LoadedModel>,
    options: &DoctorOptions,
    examined: &ExaminedDrafter,
    acceptance: &DraftAcceptance,
    prompts: &[PromptCase],
    progress: &dyn StageProgress,
) -> Result<Vec<DoctorCheck>, LabError> {
    let alone = engine(loaded, options, 1)?;
    let mut all = Vec::new();
    for (i, context) in contexts(&options.contexts, alone.context()).iter().enumerate() {
        let times = if i == 0 { costs::TIMES } else { 1 };
        let measured = CostsAtContext::measure(&alone, examined.path.as_ref(), *context, times);
        all.push(measured.map_err(LabError::in_stage("measuring costs"))?);
    }
    let Some(first) = all.first() else {
        let why = format!("the model's context of {} positions is too short to measure in", alone.context());
        return Ok(SPEED_CHECKS.map(|name| DoctorCheck::not_checked(name, why.clone())).to_vec());
    };
    let tuned_c = loaded.tuning().and_then(|tuning| tuning.c);
    let runs = (options.style, options.max_tokens);
    let speed = costs::speed(&alone, examined, first, acceptance, prompts, runs, progress)?;
    Ok(vec![
        costs::cost_of_a_draft(first, tuned_c, acceptance),
        costs::judge_speed(&speed, examined, acceptance),
        costs::long_context(&all, acceptance),
    ])
}

/// The contexts that the model has room for; if it has room for none, half of what it has.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_those_that_fit_or_half_of_the_models() {
        assert_eq!(contexts(&[256, 4096, 256], 8192), [256, 4096]);
        assert_eq!(contexts(&[256, 4096], 512), [256]);
        assert_eq!(contexts(&[256, 4096], 64), [32]);
        assert!(contexts(&[256], 12).is_empty());
    }

    #[test]
    fn strange_prompts_are_of_two_kinds() {
        let cases = strange_prompts();
        for kind in ["foreign", "noise"] {
            assert_eq!(cases.iter().filter(|c| c.category == kind).count(), 6);
        }
    }
}
