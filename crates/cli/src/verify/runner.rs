//! Runs prompts under settings and compares what comes out with plain decoding.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use selfspec_engine::{
    Engine, EngineOptions, FinishReason, Generation, Isa, KvType, Loaded, Request, SpecStats, Summary,
};

use super::setting::{Drafter, Mode, Setting};
use crate::progress::Steps;
use selfspec_lab::prompts::PromptCase;
use selfspec_lab::prompts::PromptStyle;

/// Prompts that are run together.
pub(crate) const GROUP: usize = 4;

/// One comparison to make.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Index of the prompt.
    pub(crate) prompt: usize,
    pub(crate) mode: Mode,
    pub(crate) setting: Setting,
}

/// What one run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    ids: Vec<u32>,
    finish: FinishReason,
}

/// The first place where an output differs from plain decoding.
#[derive(Debug, Clone)]
pub(crate) struct Mismatch {
    pub(crate) task: Task,
    /// Index of the first token that differs.
    pub(crate) position: usize,
    /// Token of plain decoding there, if it has one.
    pub(crate) expected: Option<u32>,
    /// Token of the setting there, if it has one.
    pub(crate) got: Option<u32>,
    /// How both ended, if all their tokens are equal.
    pub(crate) finish: Option<(FinishReason, FinishReason)>,
}

/// What the comparisons of one drafter came to.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) drafter: Drafter,
    pub(crate) cases: usize,
    pub(crate) tokens: usize,
    pub(crate) mismatches: usize,
    pub(crate) stats: SpecStats,
}

/// All comparisons so far.
pub(crate) struct Runner {
    loaded: Arc<Loaded>,
    prompts: Vec<PromptCase>,
    style: PromptStyle,
    max_tokens: usize,
    plain: HashMap<(usize, Mode, Isa), Output>,
    /// Threads of plain decoding.
    threads: usize,
    kv_type: KvType,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) first_mismatch: Option<Mismatch>,
    pub(crate) used: Vec<Setting>,
}

impl Runner {
    pub(crate) fn new(
        loaded: Arc<Loaded>,
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

    pub(crate) fn prompts(&self) -> &[PromptCase] {
        &self.prompts
    }

    /// Adds prompts; gives their indices.
    pub(crate) fn add_prompts(&mut self, prompts: Vec<PromptCase>) -> std::ops::Range<usize> {
        let start = self.prompts.len();
        self.prompts.extend(prompts);
        start..self.prompts.len()
    }

    /// Makes the comparisons, first those of one engine, then those of the next.
    pub(crate) fn compare(&mut self, tasks: Vec<Task>, steps: &Steps) -> anyhow::Result<()> {
        let mut engines: Vec<(Isa, usize)> = tasks.iter().map(|t| (t.setting.isa, t.setting.threads)).collect();
        engines.sort_by_key(|(isa, threads)| (isa.to_string(), *threads));
        engines.dedup();
        self.run_plain(&tasks)?;
        for (isa, threads) in engines {
            let engine = self.engine(isa, threads)?;
            let mine = |t: &&Task| t.setting.isa == isa && t.setting.threads == threads;
            let (together, alone): (Vec<Task>, Vec<Task>) =
                tasks.iter().filter(mine).cloned().partition(|t| t.setting.together);
            for task in alone {
                let summary = self.submit(&engine, &task)?.wait().with_context(|| self.place(&task))?;
                self.judge(task, summary);
                steps.step();
            }
            for group in groups(&together) {
                // A group of one is given a companion, or it would be alone.
                let companion =
                    if group.len() == 1 { Some(self.submit(&engine, &self.companion(&group[0]))?) } else { None };
                let running = group.iter().map(|t| self.submit(&engine, t)).collect::<anyhow::Result<Vec<_>>>()?;
                for (task, generation) in group.iter().zip(running) {
                    let summary = generation.wait().with_context(|| self.place(task))?;
                    self.judge(task.clone(), summary);
                    steps.step();
                }
                drop(companion);
            }
        }
        Ok(())
    }

    /// Plain decoding of every prompt of the tasks, alone: what the others must equal.
    fn run_plain(&mut self, tasks: &[Task]) -> anyhow::Result<()> {
        let mut isas: Vec<Isa> = Vec::new();
        for task in tasks {
            if !isas.contains(&task.setting.isa) {
                isas.push(task.setting.isa);
            }
        }
        for isa in isas {
            let missing = |t: &&Task| t.setting.isa == isa && !self.plain.contains_key(&(t.prompt, t.mode, isa));
            let todo: Vec<Task> = tasks.iter().filter(missing).cloned().collect();
            if todo.is_empty() {
                continue;
            }
            let engine = self.engine(isa, self.threads)?;
            for mut task in todo {
                if self.plain.contains_key(&(task.prompt, task.mode, isa)) {
                    continue;
                }
                task.setting.drafter = Drafter::Off;
                let summary = self.submit(&engine, &task)?.wait().with_context(|| self.place(&task))?;
                let output = Output { ids: summary.token_ids, finish: summary.finish_reason };
                self.plain.insert((task.prompt, task.mode, isa), output);
            }
        }
        Ok(())
    }

    fn engine(&self, isa: Isa, threads: usize) -> anyhow::Result<Engine> {
        let options = EngineOptions {
            threads: Some(threads),
            isa: Some(isa),
            kv_type: self.kv_type,
            max_batch: GROUP,
            ..EngineOptions::default()
        };
        Ok(Engine::open_with(&self.loaded, &options)?)
    }

    /// A neighbour for a task that has none: the next prompt, decoded plainly.
    fn companion(&self, task: &Task) -> Task {
        let prompt = (task.prompt + 1) % self.prompts.len();
        Task { prompt, mode: task.mode, setting: Setting { drafter: Drafter::Off, ..task.setting.clone() } }
    }

    fn submit(&self, engine: &Engine, task: &Task) -> anyhow::Result<Generation> {
        let mut request = Request::new(self.prompts[task.prompt].prompt(self.style));
        request.max_tokens = Some(self.max_tokens);
        request.sampling = task.mode.sampling();
        request.speculation = task.setting.speculation(engine.n_layers())?;
        engine.submit(request).with_context(|| self.place(task))
    }

    /// Where a prompt comes from, for errors.
    fn place(&self, task: &Task) -> String {
        format!("the prompt of line {}", self.prompts[task.prompt].line)
    }

    fn judge(&mut self, task: Task, summary: Summary) {
        let plain = &self.plain[&(task.prompt, task.mode, task.setting.isa)];
        let got = Output { ids: summary.token_ids, finish: summary.finish_reason };
        let equal = *plain == got;
        let drafter = &task.setting.drafter;
        let at = self.tallies.iter().position(|t| t.drafter == *drafter).unwrap_or_else(|| {
            let drafter = drafter.clone();
            self.tallies.push(Tally { drafter, cases: 0, tokens: 0, mismatches: 0, stats: SpecStats::default() });
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
            self.first_mismatch = Some(Mismatch { task, position, expected, got: found, finish });
        }
    }

    /// Statistics of all drafters together.
    pub(crate) fn stats(&self) -> SpecStats {
        let mut all = SpecStats::default();
        self.tallies.iter().for_each(|t| all.merge(&t.stats));
        all
    }

    /// Cases and tokens compared.
    pub(crate) fn totals(&self) -> (usize, usize) {
        (self.tallies.iter().map(|t| t.cases).sum(), self.tallies.iter().map(|t| t.tokens).sum())
    }
}

/// Groups of at most [`GROUP`], as even as they come: only a single task is a group of one.
fn groups(tasks: &[Task]) -> Vec<&[Task]> {
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
    use crate::args::{Color, Global};
    use crate::output::Ui;
    use selfspec_lab::prompts;

    #[test]
    fn a_token_that_differs_is_found_and_counted() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("tiny.gguf");
        TinyModel::new(Family::Llama).gguf().write(&path);
        let loaded = Loaded::open(&path, Some(1)).expect("a model");
        let mut runner = Runner::new(loaded, prompts::built_in(), PromptStyle::Plain, 12, 1, KvType::F16);
        let setting = |together| Setting {
            drafter: Drafter::Exit(2),
            draft_len: 3,
            bonus: true,
            threads: 1,
            isa: Isa::Scalar,
            together,
        };
        let task = |together| Task { prompt: 0, mode: Mode::Greedy, setting: setting(together) };
        let ui = Ui::new(&Global { quiet: true, verbose: false, offline: true, color: Color::Never });
        let steps = Steps::new(&ui, "", 0);
        runner.compare(vec![task(false), task(true)], &steps).expect("both run");
        assert!(runner.first_mismatch.is_none());
        assert_eq!((runner.tallies[0].cases, runner.tallies[0].mismatches), (2, 0));

        // As if plain decoding had given another token.
        let plain = runner.plain.get_mut(&(0, Mode::Greedy, Isa::Scalar)).expect("it was run");
        let right = plain.ids[5];
        plain.ids[5] += 1;
        runner.compare(vec![task(true)], &steps).expect("it runs");
        let mismatch = runner.first_mismatch.as_ref().expect("they differ");
        assert_eq!((mismatch.position, mismatch.expected, mismatch.got), (5, Some(right + 1), Some(right)));
        assert_eq!(runner.tallies[0].mismatches, 1);
    }

    #[test]
    fn groups_are_even() {
        let setting =
            Setting { drafter: Drafter::Off, draft_len: 1, bonus: true, threads: 1, isa: Isa::Scalar, together: true };
        for n in 0..20 {
            let tasks = vec![Task { prompt: 0, mode: Mode::Greedy, setting: setting.clone() }; n];
            let sizes: Vec<usize> = groups(&tasks).into_iter().map(<[Task]>::len).collect();
            assert_eq!(sizes.iter().sum::<usize>(), n);
            assert!(sizes.iter().all(|s| *s <= GROUP && (*s > 1 || n == 1)), "{sizes:?}");
        }
    }
}
