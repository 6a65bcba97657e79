//! `selfspec tune`: on the user's prompts and machine, how a model drafts best; or that it had better not.
//!
//! 1. The model answers the prompts plainly; the draft vocabulary is counted on what it says.
//! 2. Every way to draft runs on the prompts with a fixed draft length: that gives its acceptance by place in the round.
//! 3. Passes and draft steps are timed at several contexts: that gives c and b(m), and with the acceptance the expected speed-up for each k.
//! 4. The most promising ways are run against plain decoding, prompt by prompt. The one that is best by promise and measurement together is kept, if it pays.

mod candidate;
mod costs;
mod page;
pub(crate) mod sweep;
mod table;
mod vocab;

use std::sync::Arc;

use anyhow::Context;
use selfspec_engine::{Engine, EngineOptions, Loaded, TunedDrafter, Tuning};

use crate::args::TuneArgs;
use crate::output::{self, Ui};
use crate::{model, out_path};
use candidate::Candidate;
use costs::Costs;
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, PromptCase};
use sweep::{Acceptance, Measured};

/// Requests of a step while acceptance is measured: it does not depend on company.
const TOGETHER: usize = 8;
/// Ways to draft that are run against plain decoding.
const FINALISTS: usize = 3;
/// Speed-up below which speculation is advised against.
const WORTH: f64 = 1.02;

/// Everything that was found out.
struct Findings {
    candidates: Vec<Candidate>,
    acceptance: Vec<Acceptance>,      // (candidate)
    costs: Vec<Costs>,                // (context)
    measured: Vec<(usize, Measured)>, // finalists, best first
    coverage: Option<(usize, f64)>,   // tokens of the draft vocabulary, share of unseen answers that it covers
    prompts: usize,
}

pub(crate) fn run(args: &TuneArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), Some(args.limit))?;
    out_path::check("--report", &args.report, true)?;
    let path = model::locate(&args.model.model, ui)?;
    if !args.dry_run {
        out_path::check("the tuning beside the model,", &Tuning::path(&path), true)?;
    }
    let setup = args.compute.heads.setup();
    let setup = selfspec_engine::DraftSetup { untuned: true, ..setup };
    let loaded = Loaded::open_with(&path, args.compute.threads, &setup)
        .with_context(|| format!("cannot load {}", path.display()))?;
    let style = PromptStyle::of(args.raw, loaded.info());
    let contexts = contexts(args, loaded.info().context)?;

    let answers = sweep::answers(&engine(&loaded, args, TOGETHER)?, &prompts, style, args, ui)?;
    let (ids, coverage) = vocab::count(&answers, loaded.info().vocab, args.draft_vocab);
    let loaded = if ids.is_empty() { loaded } else { loaded.with_draft_vocab(&ids)? };
    let together = engine(&loaded, args, TOGETHER)?;
    let candidates = candidate::all(&together, &args.exits)?;
    let acceptance = sweep::acceptance(&together, &prompts, style, &candidates, args, ui)?;
    drop(together);

    let alone = engine(&loaded, args, 1)?;
    let costs = costs::measure(&alone, &candidates, &contexts, ui)?;
    let order = costs::ranking(&candidates, &acceptance, &costs[0]);
    let finalists = &order[..FINALISTS.min(order.len())];
    let measured = sweep::measure(&alone, &prompts, style, &candidates, finalists, args, ui)?;
    let mut findings = Findings {
        coverage: (!ids.is_empty()).then_some((ids.len(), coverage)),
        prompts: prompts.len(),
        candidates,
        acceptance,
        costs,
        measured,
    };
    let mut measured = std::mem::take(&mut findings.measured);
    measured.sort_by(|a, b| findings.worth(b).total_cmp(&findings.worth(a)));
    findings.measured = measured;
    conclude(args, &findings, &alone, ids, &prompts, &path, ui)
}

impl Findings {
    /// What costs and acceptance promise of a candidate at the first context.
    fn promise(&self, candidate: usize) -> f64 {
        self.costs[0].best(candidate, &self.acceptance[candidate]).1
    }

    /// The speed-up to expect of a finalist. Machines are noisy: what was measured counts as much as the promise, which stands on medians of far more steps.
    fn worth(&self, (candidate, measured): &(usize, Measured)) -> f64 {
        match self.candidates[*candidate].path {
            Some(_) => (measured.speedup * self.promise(*candidate)).sqrt(),
            None => measured.speedup, // only a run tells how often there is a match
        }
    }
}

fn engine(loaded: &Arc<Loaded>, args: &TuneArgs, max_batch: usize) -> anyhow::Result<Engine> {
    let options = EngineOptions { max_batch, ..args.compute.engine() };
    Ok(Engine::open_with(loaded, &options)?)
}

/// The contexts asked for that the model has room for.
fn contexts(args: &TuneArgs, most: usize) -> anyhow::Result<Vec<usize>> {
    let mut contexts: Vec<usize> = Vec::new();
    for context in &args.contexts {
        if context.saturating_add(costs::ROWS) < most && !contexts.contains(context) {
            contexts.push(*context);
        }
    }
    anyhow::ensure!(
        !contexts.is_empty(),
        "--contexts: the model takes {most} positions, which is too short for any of them"
    );
    Ok(contexts)
}

fn conclude(
    args: &TuneArgs,
    findings: &Findings,
    engine: &Engine,
    ids: Vec<u32>,
    prompts: &[PromptCase],
    path: &std::path::Path,
    ui: &Ui,
) -> anyhow::Result<()> {
    let best = findings.measured.first().filter(|best| best.1.speedup >= WORTH && findings.worth(best) >= WORTH);
    if let Some((candidate, measured)) = findings.measured.first() {
        let promised = findings.promise(*candidate);
        if promised < 1.0 && measured.speedup >= WORTH {
            ui.note(&format!(
                "{} promised {promised:.2} and was measured at {:.2}: more prompts, or a machine without other work, would tell more",
                findings.candidates[*candidate].name, measured.speedup
            ));
        }
    }
    let drafter = best.map_or(TunedDrafter::Off, |(i, _)| findings.candidates[*i].tuned(engine.n_layers()));
    let layer_skip = matches!(drafter, TunedDrafter::LayerSkip { .. });
    let loaded = engine.loaded().context("an engine on a model")?;
    let tuning = Tuning {
        version: Tuning::VERSION,
        model: loaded.info().name.clone().unwrap_or_else(|| args.model.model.clone()),
        fingerprint: loaded.fingerprint().to_owned(),
        isa: engine.isa().map(|isa| isa.to_string()).unwrap_or_default(),
        threads: engine.threads(),
        prompts: args.prompts.as_ref().map_or("built-in".to_owned(), |p| p.display().to_string()),
        speedup: best.map_or(1.0, |(_, measured)| measured.speedup),
        draft_vocab: if layer_skip { ids } else { Vec::new() },
        exit_head: match &args.compute.heads.exit_head {
            Some(selfspec_engine::ExitHeadSource::File(file)) => Some(std::path::absolute(file)?),
            _ => None,
        },
        acceptance: best.map(|(i, _)| findings.acceptance[*i].places_by_category()).unwrap_or_default(),
        c: best.filter(|(i, _)| findings.candidates[*i].path.is_some()).map(|(i, _)| findings.costs[0].c[*i]),
        drafter,
    };
    output::print(&table::text(args, findings, &tuning))?;
    let page = page::html(args, findings, &tuning)?;
    std::fs::write(&args.report, page).with_context(|| format!("cannot write {}", args.report.display()))?;
    ui.note(&format!("{}: the curves, over {} prompts", args.report.display(), prompts.len()));
    if args.dry_run {
        return Ok(());
    }
    let written = tuning.write(path)?;
    ui.note(&format!("{}: later runs of this model read it; --no-tuning leaves it unread", written.display()));
    Ok(())
}
