//! `selfspec verify`: proves on this machine that speculation changes nothing, and that the proof tested something.
//!
//! Every prompt is decoded plainly, then under settings that must not matter: drafter, draft length, bonus row, threads, alone or in a
//! batch. All token ids must be equal, greedy and seeded. Unseeded sampling cannot be compared token by token; its acceptance rule is tested
//! as a distribution, on this model's own logits. If nothing was drafted, accepted or rejected, or an accepted length never occurred,
//! the verdict is a failure too.

mod report;
mod runner;
mod sampling;
mod setting;

use selfspec_engine::Isa;

use crate::args::VerifyArgs;
use crate::failure::Told;
use crate::model;
use crate::output::{self, Ui};
use crate::progress::Steps;
use report::{MismatchJson, VerifyJson, accepted_lengths};
use runner::{Runner, Task};
use selfspec_lab::prompts::PromptStyle;
use selfspec_lab::prompts::{self, COPYING};
use setting::{Axes, Drafter, Mode, Setting};

/// The longest draft that is verified.
const LONGEST: usize = 8;
/// At least this many comparisons are made, however few the prompts: each drafter gets several.
const FEWEST: usize = 64;

pub(crate) fn run(args: &VerifyArgs, ui: &Ui) -> anyhow::Result<()> {
    let prompts = prompts::load(args.prompts.as_deref(), args.limit)?;
    let threads = plain_threads(&args.threads);
    let loaded = model::load(&args.model.model, Some(threads), &args.heads, ui)?;
    let style = PromptStyle::of(args.raw, loaded.info());
    let isas = if args.isa.is_empty() { vec![Isa::detect()?] } else { unique(&args.isa) };
    let axes = Axes {
        drafters: Drafter::all(
            loaded.info().n_layers,
            loaded.draft_heads().exit.is_some(),
            loaded.tuning().map(|tuning| &tuning.drafter),
        ),
        draft_lens: (1..=LONGEST).collect(),
        threads: unique(&args.threads),
        isas,
    };
    let tasks = if args.exhaustive { all_tasks(&axes, prompts.len()) } else { drawn_tasks(&axes, prompts.len()) };
    let mut runner = Runner::new(loaded.clone(), prompts, style, args.max_tokens, threads, args.kv.kv_type);
    let steps = Steps::new(ui, "comparing", tasks.len() as u64);
    runner.compare(tasks, &steps)?;
    drop(steps);
    fill_lengths(&mut runner, &axes, ui)?;
    let distribution = sampling::test(&loaded, runner.prompts(), style, threads, args.kv.kv_type, ui)?;
    conclude(args, &runner, &distribution, ui)
}

/// Threads of plain decoding: the most of those asked for that the machine has cores for.
fn plain_threads(threads: &[usize]) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let fitting = threads.iter().copied().filter(|t| *t <= cores).max();
    fitting.or(threads.iter().copied().min()).unwrap_or(1)
}

fn unique<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(value) {
            kept.push(value.clone());
        }
    }
    kept
}

fn modes(prompt: usize) -> [Mode; 2] {
    [Mode::Greedy, Mode::Seeded(1000 + prompt as u64)]
}

/// Each prompt, greedy and seeded, under a setting of its own; several times over if there are few prompts.
fn drawn_tasks(axes: &Axes, prompts: usize) -> Vec<Task> {
    let pairs: Vec<(usize, Mode)> = (0..prompts).flat_map(|p| modes(p).map(|m| (p, m))).collect();
    let rounds = FEWEST.div_ceil(pairs.len());
    let settings = axes.draw(rounds * pairs.len());
    let pairs = pairs.iter().cycle();
    settings.into_iter().zip(pairs).map(|(setting, &(prompt, mode))| Task { prompt, mode, setting }).collect()
}

fn all_tasks(axes: &Axes, prompts: usize) -> Vec<Task> {
    let settings = axes.product();
    let pairs = (0..prompts).flat_map(|p| modes(p).map(|m| (p, m)));
    pairs.flat_map(|(prompt, mode)| settings.iter().map(move |s| Task { prompt, mode, setting: s.clone() })).collect()
}

/// Runs copying prompts with prompt lookup until every accepted length has occurred, or all of them are spent. The prompts at hand
/// may never have accepted a whole long draft, and an untested length is an untested case.
fn fill_lengths(runner: &mut Runner, axes: &Axes, ui: &Ui) -> anyhow::Result<()> {
    let seen = |runner: &Runner, a: usize| runner.stats().accepted_lengths.get(a).is_some_and(|n| *n > 0);
    if (0..=LONGEST).all(|a| seen(runner, a)) {
        return Ok(());
    }
    let copying = prompts::built_in().into_iter().filter(|c| c.category == COPYING).collect();
    let copying = runner.add_prompts(copying);
    let steps = Steps::new(ui, "looking for every accepted length", (copying.len() * 2 * LONGEST) as u64);
    for prompt in copying {
        for mode in modes(prompt) {
            for draft_len in 1..=LONGEST {
                // A draft of this length can add the lengths up to it; those that are still missing decide.
                if (0..=draft_len).all(|a| seen(runner, a)) {
                    continue;
                }
                let setting = Setting {
                    drafter: Drafter::PromptLookup,
                    draft_len,
                    bonus: true,
                    threads: axes.threads[0],
                    isa: axes.isas[0],
                    together: false,
                };
                runner.compare(vec![Task { prompt, mode, setting }], &steps)?;
            }
        }
    }
    Ok(())
}

fn conclude(args: &VerifyArgs, runner: &Runner, distribution: &sampling::Outcome, ui: &Ui) -> anyhow::Result<()> {
    let stats = runner.stats();
    let (cases, tokens) = runner.totals();
    let lengths = accepted_lengths(&stats, LONGEST);
    let mut untested = Vec::new();
    for (what, n) in [("drafted", stats.drafted), ("accepted", stats.accepted), ("rejected", stats.rejected)] {
        if n == 0 {
            untested.push(format!("no token was {what}"));
        }
    }
    let missing: Vec<String> = (0..=LONGEST).filter(|a| lengths[*a] == 0).map(|a| a.to_string()).collect();
    if !missing.is_empty() {
        untested.push(format!("no round accepted {} tokens", missing.join(", ")));
    }
    untested.extend(distribution.untested());
    let mismatch = runner.first_mismatch.as_ref().map(|m| (m, MismatchJson::new(m, runner.prompts(), args)));
    let ok = mismatch.is_none() && untested.is_empty() && distribution.ok();
    if args.json {
        output::print_json(&VerifyJson {
            ok,
            cases,
            tokens,
            drafted: stats.drafted,
            accepted: stats.accepted,
            rejected: stats.rejected,
            accepted_lengths: lengths,
            first_mismatch: mismatch.as_ref().map(|(_, json)| json.clone()),
            untested: untested.clone(),
        })?;
    } else {
        output::print(&report::tables(runner, LONGEST))?;
        output::println(&format!("rejection sampling         {}", distribution.words()))?;
        if ok {
            output::println(&format!("\nlossless: {cases} cases, {tokens} tokens, every one equal"))?;
        }
    }
    if let Some((mismatch, json)) = &mismatch {
        ui.error(&format!("output differs from plain decoding: {}", json.words(mismatch)));
        ui.hint(&json.reproduce());
    }
    if distribution.refuted() {
        ui.error(&format!("rejection sampling: {}", distribution.words()));
    }
    if !untested.is_empty() {
        ui.error(&format!("too little was tested: {}", untested.join("; ")));
        ui.hint("longer outputs (-n) and more prompts give more rounds");
    }
    if ok { Ok(()) } else { Err(Told.into()) }
}
