//! Runs prompts under settings and compares their output with plain decoding.

use std::collections::HashMap;
use std::sync::Arc;

use selfspec_engine::{
    Engine, EngineError, EngineOptions, FinishReason, Generation, LoadedModel, Request, RequestSummary,
};
use selfspec_kernels::{Isa, KvType};
use selfspec_model::TokenId;
use selfspec_speculate::SpecStats;

use super::setting::{DecodingSetting, SamplingMode, VerifiedDrafter};
use crate::error::LabError;
use crate::progress::Stage;
use crate::prompts::{PromptCase, PromptStyle};

/// Prompts that are run together.
const GROUP: usize = 4;

/// One output to compare with plain decoding.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Index of the prompt.
    pub prompt: usize,
    /// How tokens are chosen.
    pub mode: SamplingMode,
    /// The setting that must not matter.
    pub setting: DecodingSetting,
}

/// The output of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunOutput {
    ids: Vec<TokenId>,
    finish: FinishReason,
}

/// The first place where an output differs from plain decoding.
#[derive(Debug, Clone)]
pub struct OutputMismatch {
    /// The prompt.
    pub case: PromptCase,
    /// How tokens were chosen.
    pub mode: SamplingMode,
    /// The setting whose output differs.
    pub setting: DecodingSetting,
    /// Index of the first token that differs.
    pub position: usize,
    /// Token of plain decoding there, if it has one.
    pub expected: Option<TokenId>,
    /// Token of the setting there, if it has one.
    pub got: Option<TokenId>,
    /// How both ended, plain decoding first, if all their tokens are equal.
    pub finish: Option<(FinishReason, FinishReason)>,
}

/// The comparisons of one drafter.
#[derive(Debug, Clone)]
pub struct DrafterTally {
    /// The drafter.
    pub drafter: VerifiedDrafter,
    /// Outputs compared.
    pub cases: usize,
    /// Tokens in them.
    pub tokens: usize,
    /// Outputs that differ.
    pub mismatches: usize,
    /// What drafting did.
    pub stats: SpecStats,
}

/// All comparisons so far.
pub(super) struct Runner {
    loaded: Arc<LoadedModel>,
    prompts: Vec<PromptCase>,
    style: PromptStyle,
    max_tokens: usize,
    plain: HashMap<(usize, SamplingMode, Isa), RunOutput>,
    /// Threads of plain decoding.
    threads: usize,
    kv_type: KvType,
    pub(super) tallies: Vec<DrafterTally>,
    pub(super) first_mismatch: Option<OutputMismatch>,
    pub(super) used: Vec<DecodingSetting>,
}

impl Runner {
    pub(super) fn new(
        loaded: Arc<LoadedModel>,
        prompts: Vec<PromptCase>,
        style: PromptStyle,
        max_tokens: usize,
        threads: usize,
        kv_type: KvType,
    ) -> Self {
        Runner {
            loaded,
            prompts,
            style,
            max_tokens,
            plain: HashMap::new(),
            threads,
            kv_type,
            tallies: Vec::new(),
            first_mismatch: None,
            used: Vec::new(),
        }
    }

    pub(super) fn prompts(&self) -> &[PromptCase] {
        &self.prompts
    }

    /// Adds prompts and gives their indices.
    pub(super) fn add_prompts(&mut self, prompts: Vec<PromptCase>) -> std::ops::Range<usize> {
        let start = self.prompts.len();
        self.prompts.extend(prompts);
        start..self.prompts.len()
    }

    /// Makes the comparisons, first those of one engine, then those of the next.
    pub(super) fn compare(&mut self, tasks: Vec<Comparison>, stage: &Stage<'_>) -> Result<(), LabError> {
        let mut engines: Vec<(Isa, usize)> = tasks.iter().map(|t| (t.setting.isa, t.setting.threads)).collect();
        engines.sort_by_key(|(isa, threads)| (isa.to_string(), *threads));
        engines.dedup();
        self.run_plain(&tasks)?;
        for (isa, threads) in engines {
            let engine = self.engine(isa, threads)?;
            let mine = |t: &&Comparison| t.setting.isa == isa && t.setting.threads == threads;
            let (together, alone): (Vec<Comparison>, Vec<Comparison>) =
                tasks.iter().filter(mine).cloned().partition(|t| t.setting.together);
            for task in alone {
                let summary = self.submit(&engine, &task)?.wait().map_err(|e| self.failed(&task, e))?;
                self.judge(task, summary);
                stage.step();
            }
            for group in groups(&together) {
                // A group of one gets a companion: else it would be alone in its steps.
                let companion =
                    if group.len() == 1 { Some(self.submit(&engine, &self.companion(&group[0]))?) } else { None };
                let running = group.iter().map(|t| self.submit(&engine, t)).collect::<Result<Vec<_>, LabError>>()?;
                for (task, generation) in group.iter().zip(running) {
                    let summary = generation.wait().map_err(|e| self.failed(task, e))?;
                    self.judge(task.clone(), summary);
                    stage.step();
                }
                drop(companion);
            }
        }
        Ok(())
    }

    /// Decodes every prompt of the tasks plainly and alone: the output that the others must equal.
    fn run_plain(&mut self, tasks: &[Comparison]) -> Result<(), LabError> {
        let mut isas: Vec<Isa> = Vec::new();
        for task in tasks {
            if !isas.contains(&task.setting.isa) {
                isas.push(task.setting.isa);
            }
        }
        for isa in isas {
            let missing = |t: &&Comparison| t.setting.isa == isa && !self.plain.contains_key(&(t.prompt, t.mode, isa));
            let todo: Vec<Comparison> = tasks.iter().filter(missing).cloned().collect();
            if todo.is_empty() {
                continue;
            }
            let engine = self.engine(isa, self.threads)?;
            for mut task in todo {
                if self.plain.contains_key(&(task.prompt, task.mode, isa)) {
                    continue;
                }
                task.setting.drafter = VerifiedDrafter::Off;
                let summary = self.submit(&engine, &task)?.wait().map_err(|e| self.failed(&task, e))?;
                let output = RunOutput { ids: summary.token_ids, finish: summary.finish_reason };
                self.plain.insert((task.prompt, task.mode, isa), output);
            }
        }
        Ok(())
    }

    fn engine(&self, isa: Isa, threads: usize) -> Result<Engine, LabError> {
        let options = EngineOptions {
            threads: Some(threads),
            isa: Some(isa),
            kv_type: self.kv_type,
            max_batch: GROUP,
            ..EngineOptions::default()
        };
        Ok(Engine::open_with(&self.loaded, &options)?)
    }

    /// A companion for a task in a group of one: the next prompt, decoded plainly.
    fn companion(&self, task: &Comparison) -> Comparison {
        let prompt = (task.prompt + 1) % self.prompts.len();
        Comparison {
            prompt,
            mode: task.mode,
            setting: DecodingSetting { drafter: VerifiedDrafter::Off, ..task.setting.clone() },
        }
    }

    fn submit(&self, engine: &Engine, task: &Comparison) -> Result<Generation, LabError> {
        let mut request = Request::new(self.prompts[task.prompt].prompt(self.style));
        request.max_tokens = Some(self.max_tokens);
        request.sampling = task.mode.sampling();
        request.speculation = task.setting.speculation(engine.n_layers())?;
        engine.submit(request).map_err(|e| self.failed(task, e))
    }

    /// The error with the prompt that it belongs to.
    fn failed(&self, task: &Comparison, source: EngineError) -> LabError {
        LabError::Prompt { line: self.prompts[task.prompt].line, source }
    }

    /// Compares an output with that of plain decoding.
    fn judge(&mut self, task: Comparison, summary: RequestSummary) {
        let plain = &self.plain[&(task.prompt, task.mode, task.setting.isa)];
        let got = RunOutput { ids: summary.token_ids, finish: summary.finish_reason };
        let equal = *plain == got;
        let drafter = &task.setting.drafter;
        let at = self.tallies.iter().position(|t| t.drafter == *drafter).unwrap_or_else(|| {
            let drafter = drafter.clone();
            self.tallies.push(DrafterTally {
                drafter,
                cases: 0,
                tokens: 0,
                mismatches: 0,
                stats: SpecStats::default(),
            });
            self.tallies.len() - 1
        });
        let tally = &mut self.tallies[at];
        tally.cases += 1;
        tally.tokens += got.ids.len();
        tally.mismatches += usize::from(!equal);
        tally.stats.merge(&summary.stats);
        self.used.push(task.setting.clone());
        if !equal && self.first_mismatch.is_none() {
            let position = plain.ids.iter().zip(&got.ids).take_while(|(a, b)| a == b).count();
            let (expected, found) = (plain.ids.get(position).copied(), got.ids.get(position).copied());
            let finish = (plain.ids == got.ids).then_some((plain.finish, got.finish));
            let case = self.prompts[task.prompt].clone();
            let (mode, setting) = (task.mode, task.setting);
            self.first_mismatch = Some(OutputMismatch { case, mode, setting, position, expected, got: found, finish });
        }
    }

    /// Statistics of all drafters together.
    pub(super) fn stats(&self) -> SpecStats {
        let mut all = SpecStats::default();
        self.tallies.iter().for_each(|t| all.merge(&t.stats));
        all
    }

    /// Cases and tokens compared.
    pub(super) fn totals(&self) -> (usize, usize) {
        (self.tallies.iter().map(|t| t.cases).sum(), self.tallies.iter().map(|t| t.tokens).sum())
    }
}

/// Groups of at most [`GROUP`], as even as possible: only a single task is a group of one.
fn groups(tasks: &[Comparison]) -> Vec<&[Comparison]> {
    let count = tasks.len().div_ceil(GROUP);
    let mut rest = tasks;
    let mut groups = Vec::with_capacity(count);
    for left in (1..=count).rev() {
        let (group, others) = rest.split_at(rest.len().div_ceil(left));
        groups.push(group);
        rest = others;
    }
    groups
}

#[cfg(test)]
mod tests {
    use selfspec_testkit::{Family, TinyModel};

    use super::*;
    use crate::prompts;

    #[test]
    fn a_token_that_differs_is_found_and_counted() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("tiny.gguf");
        TinyModel::new(Family::Llama).gguf().write(&path);
        let loaded = LoadedModel::open(&path, Some(1)).expect("a model");
        let mut runner = Runner::new(loaded, prompts::built_in(), PromptStyle::Plain, 12, 1, KvType::F16);
        let setting = |together| DecodingSetting {
            drafter: VerifiedDrafter::Exit(2),
            draft_len: 3,
            bonus: true,
            threads: 1,
            isa: Isa::Scalar,
            together,
        };
        let task = |together| Comparison { prompt: 0, mode: SamplingMode::Greedy, setting: setting(together) };
        let stage = Stage::begin(&(), "comparing", 3);
        runner.compare(vec![task(false), task(true)], &stage).expect("both run");
        assert!(runner.first_mismatch.is_none());
        assert_eq!((runner.tallies[0].cases, runner.tallies[0].mismatches), (2, 0));

        // As if plain decoding had another token there.
        let plain = runner.plain.get_mut(&(0, SamplingMode::Greedy, Isa::Scalar)).expect("it was run");
        let right = plain.ids[5];
        plain.ids[5] += 1;
        runner.compare(vec![task(true)], &stage).expect("it runs");
        let mismatch = runner.first_mismatch.as_ref().expect("they differ");
        assert_eq!((mismatch.position, mismatch.expected, mismatch.got), (5, Some(right + 1), Some(right)));
        assert_eq!(runner.tallies[0].mismatches, 1);
    }

    #[test]
    fn groups_are_even() {
        let setting = DecodingSetting {
            drafter: VerifiedDrafter::Off,
            draft_len: 1,
            bonus: true,
            threads: 1,
            isa: Isa::Scalar,
            together: true,
        };
        for n in 0..20 {
            let tasks = vec![Comparison { prompt: 0, mode: SamplingMode::Greedy, setting: setting.clone() }; n];
            let sizes: Vec<usize> = groups(&tasks).into_iter().map(<[Comparison]>::len).collect();
            assert_eq!(sizes.iter().sum::<usize>(), n);
            assert!(sizes.iter().all(|s| *s <= GROUP && (*s > 1 || n == 1)), "{sizes:?}");
        }
    }
}
