//! The proof: the comparisons that are made, and their report.

use std::sync::Arc;

use selfspec_engine::LoadedModel;
use selfspec_kernels::{Isa, KvType};

use super::comparison::{Comparison, DrafterTally, OutputMismatch, Runner};
use super::rejection::{self, SamplingTrials};
use super::setting::{DecodingSetting, SamplingMode, SettingAxes, VerifiedDrafter};
use crate::error::LabError;
use crate::progress::{Stage, StageProgress};
use crate::prompts::{self, COPYING, PromptCase, PromptStyle};

/// The longest draft that is verified, in tokens.
pub const LONGEST_DRAFT: usize = 8;
/// At least this many comparisons are made, however few the prompts: each drafter gets several.
const FEWEST: usize = 64;

/// What a proof covers.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// How the prompts are given to the model.
    pub style: PromptStyle,
    /// Most tokens to generate for each prompt.
    pub max_tokens: usize,
    /// Thread counts to compare; at least one.
    pub threads: Vec<usize>,
    /// Instruction sets to compare; empty: the best that the processor has.
    pub isas: Vec<Isa>,
    /// Numbers of the KV cache.
    pub kv_type: KvType,
    /// Whether every prompt runs under every setting, and not under a few that are drawn.
    pub exhaustive: bool,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        VerifyOptions {
            style: PromptStyle::Chat,
            max_tokens: 64,
            threads: vec![1, 2, 3],
            isas: Vec::new(),
            kv_type: KvType::default(),
            exhaustive: false,
        }
    }
}

/// What a proof found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Outputs that were compared with plain decoding.
    pub cases: usize,
    /// Tokens in them.
    pub tokens: usize,
    /// Tokens drafted in all comparisons.
    pub drafted: u64,
    /// Of these, tokens accepted.
    pub accepted: u64,
    /// Of these, tokens rejected.
    pub rejected: u64,
    /// Rounds by the number of drafts they accepted. Shape: (accepted drafts, 0 to
    /// [`LONGEST_DRAFT`]).
    pub accepted_lengths: Vec<u64>,
    /// The first output that differed from plain decoding.
    pub first_mismatch: Option<OutputMismatch>,
    /// Gaps of the proof, a sentence each. With any, the proof has failed even if nothing differs.
    pub untested: Vec<String>,
    /// Comparisons by drafter, plain decoding first. Shape: (drafter).
    pub tallies: Vec<DrafterTally>,
    /// The setting of each comparison. Shape: (case).
    pub settings: Vec<DecodingSetting>,
    /// The test of rejection sampling.
    pub rejection_sampling: SamplingTrials,
}

impl VerifyReport {
    /// Whether the proof holds: nothing differs, and nothing was left untested.
    pub fn ok(&self) -> bool {
        self.first_mismatch.is_none() && self.untested.is_empty() && self.rejection_sampling.ok()
    }
}

/// Verifies a model on prompts.
///
/// # Errors
/// There are no prompts or no thread counts, an engine cannot be started, or a request fails.
pub fn verify(
    loaded: &Arc<LoadedModel>,
    prompts: Vec<PromptCase>,
    options: &VerifyOptions,
    progress: &dyn StageProgress,
) -> Result<VerifyReport, LabError> {
    if prompts.is_empty() {
        return Err(LabError::NoPrompts);
    }
    if options.threads.is_empty() {
        return Err(LabError::Option { name: "threads", why: "names no thread count".to_owned() });
    }
    let threads = plain_threads(&options.threads);
    let isas = if options.isas.is_empty() { vec![Isa::detect()?] } else { unique(&options.isas) };
    let tuned = loaded.tuning().map(|tuning| &tuning.drafter);
    let axes = SettingAxes {
        drafters: VerifiedDrafter::all(loaded.info().n_layers, loaded.draft_heads().exit.is_some(), tuned),
        draft_lens: (1..=LONGEST_DRAFT).collect(),
        threads: unique(&options.threads),
        isas,
    };
    let tasks = match options.exhaustive {
        true => all_comparisons(&axes, prompts.len()),
        false => drawn_comparisons(&axes, prompts.len()),
    };
    let mut runner = Runner::new(loaded.clone(), prompts, options.style, options.max_tokens, threads, options.kv_type);
    let stage = Stage::begin(progress, "comparing", tasks.len());
    runner.compare(tasks, &stage)?;
    drop(stage);
    fill_lengths(&mut runner, &axes, progress)?;
    let trials = rejection::test(loaded, runner.prompts(), options.style, threads, options.kv_type, progress)?;
    Ok(report(runner, trials))
}

/// Threads of plain decoding: the most of `threads` that the machine has cores for. Shape: (thread
/// count).
pub fn plain_threads(threads: &[usize]) -> usize {
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

fn modes(prompt: usize) -> [SamplingMode; 2] {
    [SamplingMode::Greedy, SamplingMode::Seeded(1000 + prompt as u64)]
}

/// Each prompt, greedy and seeded, under a setting drawn for it; several times over if there are
/// few prompts.
fn drawn_comparisons(axes: &SettingAxes, prompts: usize) -> Vec<Comparison> {
    let pairs: Vec<(usize, SamplingMode)> = (0..prompts).flat_map(|p| modes(p).map(|m| (p, m))).collect();
    let rounds = FEWEST.div_ceil(pairs.len());
    let settings = axes.draw(rounds * pairs.len());
    let pairs = pairs.iter().cycle();
    settings.into_iter().zip(pairs).map(|(setting, &(prompt, mode))| Comparison { prompt, mode, setting }).collect()
}

fn all_comparisons(axes: &SettingAxes, prompts: usize) -> Vec<Comparison> {
    let settings = axes.product();
    let pairs = (0..prompts).flat_map(|p| modes(p).map(|m| (p, m)));
    let of = |(prompt, mode)| settings.iter().map(move |s| Comparison { prompt, mode, setting: s.clone() });
    pairs.flat_map(of).collect()
}

/// Runs copying prompts with prompt lookup until every accepted length has occurred, or all of them
/// are spent. The given prompts may never have accepted a whole long draft, and an untested length
/// is an untested case.
fn fill_lengths(runner: &mut Runner, axes: &SettingAxes, progress: &dyn StageProgress) -> Result<(), LabError> {
    let seen = |runner: &Runner, a: usize| runner.stats().accepted_lengths.get(a).is_some_and(|n| *n > 0);
    if (0..=LONGEST_DRAFT).all(|a| seen(runner, a)) {
        return Ok(());
    }
    let copying = prompts::built_in().into_iter().filter(|c| c.category == COPYING).collect();
    let copying = runner.add_prompts(copying);
    let stage = Stage::begin(progress, "looking for every accepted length", copying.len() * 2 * LONGEST_DRAFT);
    for prompt in copying {
        for mode in modes(prompt) {
            for draft_len in 1..=LONGEST_DRAFT {
                // A draft of this length can add the lengths up to it; those that are still missing
                // decide.
                if (0..=draft_len).all(|a| seen(runner, a)) {
                    continue;
                }
                let setting = DecodingSetting {
                    drafter: VerifiedDrafter::PromptLookup,
                    draft_len,
                    bonus: true,
                    threads: axes.threads[0],
                    isa: axes.isas[0],
                    together: false,
                };
                runner.compare(vec![Comparison { prompt, mode, setting }], &stage)?;
            }
        }
    }
    Ok(())
}

fn report(runner: Runner, rejection_sampling: SamplingTrials) -> VerifyReport {
    let stats = runner.stats();
    let (cases, tokens) = runner.totals();
    let accepted_lengths: Vec<u64> = stats.accepted_lengths.iter().take(LONGEST_DRAFT + 1).copied().collect();
    let mut untested = Vec::new();
    for (what, n) in [("drafted", stats.drafted), ("accepted", stats.accepted), ("rejected", stats.rejected)] {
        if n == 0 {
            untested.push(format!("no token was {what}"));
        }
    }
    let missing: Vec<String> =
        (0..=LONGEST_DRAFT).filter(|a| accepted_lengths[*a] == 0).map(|a| a.to_string()).collect();
    if !missing.is_empty() {
        untested.push(format!("no round accepted {} tokens", missing.join(", ")));
    }
    untested.extend(rejection_sampling.untested());
    let mut tallies = runner.tallies;
    tallies.sort_by_key(|t| t.drafter.rank());
    VerifyReport {
        cases,
        tokens,
        drafted: stats.drafted,
        accepted: stats.accepted,
        rejected: stats.rejected,
        accepted_lengths,
        first_mismatch: runner.first_mismatch,
        untested,
        tallies,
        settings: runner.used,
        rejection_sampling,
    }
}
