//! The model's own answers, kept in a file as they come, so that a stopped run continues where it
//! was.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use selfspec_engine::{Engine, Generation, Prompt, Request};
use selfspec_model::TokenId;
use selfspec_speculate::{SamplingParams, SpeculationParams};
use serde::{Deserialize, Serialize};

use super::control::{ReportTimer, TrainingControl, TrainingNote};
use super::error::{TrainingError, TrainingUnit};
use crate::progress::Stage;

/// Requests under way at a time: more than a step takes, so that none waits for the next prompt.
const UNDER_WAY: usize = 64;

/// A prompt and the model's answer, a line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredAnswer {
    /// Kind of task.
    pub(super) domain: String,
    /// The tokens of the prompt. Shape: (token).
    pub(super) prompt: Vec<TokenId>,
    /// The tokens of the answer. Shape: (token).
    pub(super) tokens: Vec<TokenId>,
    /// Most tokens that it could have.
    #[serde(default)]
    pub(super) max_tokens: Option<usize>,
    /// Temperature that it was sampled at, and the seed if that is above 0.
    #[serde(default)]
    pub(super) sampled: Option<(f32, Option<u64>)>,
}

impl StoredAnswer {
    /// How it shows that it was made for another task; `None` if it was not.
    fn differs(&self, prompt: &[TokenId], task: &AnswerTask) -> Option<String> {
        if self.prompt != prompt {
            return Some("is to another prompt: files, limits or their order have changed".to_owned());
        }
        let changed = self.max_tokens.filter(|n| *n != task.max_tokens);
        if let Some(n) = changed {
            return Some(format!("could have {n} tokens, -n is {} now", task.max_tokens));
        }
        let sampled = self.sampled.filter(|sampled| *sampled != task.sampled());
        sampled.map(|_| "was sampled otherwise: --sampled or --seed has changed".to_owned())
    }
}

/// One answer to be generated.
#[derive(Debug, Clone)]
pub(super) struct AnswerTask {
    pub(super) domain: String,
    pub(super) prompt: Prompt,
    pub(super) sampling: SamplingParams,
    pub(super) max_tokens: usize,
}

impl AnswerTask {
    fn sampled(&self) -> (f32, Option<u64>) {
        let temperature = self.sampling.temperature;
        (temperature, self.sampling.seed.filter(|_| temperature > 0.0))
    }
}

/// The answers in `path`, and those of `tasks` that it lacks, which are generated and appended. A
/// prompt that leaves no room in the context has an empty answer.
///
/// # Errors
/// The file holds answers to other prompts, cannot be read or written, or the engine fails.
pub(super) fn generate(
    engine: &Engine,
    stage: &'static str,
    tasks: &[AnswerTask],
    path: &Path,
    control: &dyn TrainingControl,
) -> Result<Vec<StoredAnswer>, TrainingError> {
    let mut answers = read(path)?;
    for (line, (answer, task)) in answers.iter().zip(tasks).enumerate() {
        if let Some(why) = answer.differs(&engine.encode(&task.prompt)?, task) {
            return Err(stale(path, format!("the answer in line {} {why}", line + 1)));
        }
    }
    if answers.len() >= tasks.len() {
        answers.truncate(tasks.len());
        return Ok(answers);
    }
    let cannot = TrainingError::io("write", path);
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(&cannot)?;
    let mut file = BufWriter::new(file);
    let bar = Stage::begin(control, stage, tasks.len());
    let (started, mut timer) = (Instant::now(), ReportTimer::start());
    let (mut tokens, first) = (0, answers.len());
    let mut under_way: VecDeque<(&AnswerTask, Vec<TokenId>, Option<Generation>)> = VecDeque::new();
    let mut waiting = tasks[first..].iter();
    (0..first).for_each(|_| bar.step());
    let stopped = control.stop_signal();
    loop {
        if stopped() {
            file.flush().map_err(&cannot)?;
            return Err(TrainingError::Stopped { done: answers.len(), of: tasks.len(), unit: TrainingUnit::Answers });
        }
        while under_way.len() < UNDER_WAY
            && let Some(task) = waiting.next()
        {
            under_way.push_back(submit(engine, task)?);
        }
        let Some((task, prompt, generation)) = under_way.pop_front() else { break };
        let generated = generation.map(Generation::wait).transpose()?.map_or(Vec::new(), |summary| summary.token_ids);
        tokens += generated.len();
        let answer = StoredAnswer {
            domain: task.domain.clone(),
            prompt,
            tokens: generated,
            max_tokens: Some(task.max_tokens),
            sampled: Some(task.sampled()),
        };
        serde_json::to_writer(&mut file, &answer).map_err(|error| cannot(error.into()))?;
        file.write_all(b"\n").map_err(&cannot)?;
        answers.push(answer);
        bar.step();
        if timer.is_due() {
            file.flush().map_err(&cannot)?;
            let seconds = started.elapsed().as_secs_f64();
            let each = seconds / (answers.len() - first) as f64;
            control.training_note(&TrainingNote::Progress {
                stage,
                done: answers.len(),
                of: tasks.len(),
                tokens_per_second: Some(tokens as f64 / seconds),
                seconds_left: each * (tasks.len() - answers.len()) as f64,
            });
        }
    }
    file.flush().map_err(&cannot)?;
    file.get_ref().sync_all().map_err(&cannot)?;
    Ok(answers)
}

fn submit<'t>(
    engine: &Engine,
    task: &'t AnswerTask,
) -> Result<(&'t AnswerTask, Vec<TokenId>, Option<Generation>), TrainingError> {
    let prompt = engine.encode(&task.prompt)?;
    if prompt.len() + 1 >= engine.context() {
        return Ok((task, Vec::new(), None));
    }
    let mut request = Request::new(Prompt::Tokens(prompt.clone()));
    request.max_tokens = Some(task.max_tokens.min(engine.context() - prompt.len() - 1).max(1));
    request.sampling = task.sampling.clone();
    request.speculation = SpeculationParams::off();
    Ok((task, prompt, Some(engine.submit(request)?)))
}

/// The whole lines of a file. A last line that a crash cut short is removed.
fn read(path: &Path) -> Result<Vec<StoredAnswer>, TrainingError> {
    let cannot = TrainingError::io("read", path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let mut answers = Vec::new();
    let (mut reader, mut line, mut whole) = (BufReader::new(file), Vec::new(), 0u64);
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line).map_err(&cannot)?;
        if !line.ends_with(b"\n") {
            break;
        }
        let answer = serde_json::from_slice(&line);
        answers.push(answer.map_err(|e| stale(path, format!("line {} is no answer: {e}", answers.len() + 1)))?);
        whole += n as u64;
    }
    if whole < std::fs::metadata(path).map_err(&cannot)?.len() {
        let file = OpenOptions::new().write(true).open(path).map_err(&cannot)?;
        file.set_len(whole).map_err(&cannot)?;
    }
    Ok(answers)
}

fn stale(path: &Path, why: String) -> TrainingError {
    TrainingError::Stale { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> StoredAnswer {
        StoredAnswer {
            domain: "chat".to_owned(),
            prompt: vec![1, 2],
            tokens: vec![3],
            max_tokens: Some(8),
            sampled: Some((0.8, Some(5))),
        }
    }

    #[test]
    fn a_line_that_a_crash_cut_short_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("answers.jsonl");
        assert_eq!(read(&path).expect("none yet"), []);
        let answer = answer();
        let line = serde_json::to_string(&answer).expect("plain data");
        std::fs::write(&path, format!("{line}\n{line}\n{}", &line[..20])).expect("written");
        assert_eq!(read(&path).expect("two lines"), [answer.clone(), answer]);
        assert_eq!(std::fs::metadata(&path).expect("there").len(), 2 * (line.len() as u64 + 1));
        std::fs::write(&path, format!("{line}\n}}{{\n{line}\n")).expect("written");
        let why = read(&path).expect_err("not an answer").to_string();
        assert!(why.contains("answers.jsonl: line 2 is no answer: "), "{why}");
    }

    #[test]
    fn answers_of_another_task_are_recognised() {
        let sampling = SamplingParams { temperature: 0.8, seed: Some(5), ..SamplingParams::default() };
        let task = |max_tokens, sampling: &SamplingParams| AnswerTask {
            domain: "chat".to_owned(),
            prompt: Prompt::Tokens(vec![1, 2]),
            sampling: sampling.clone(),
            max_tokens,
        };
        let answer = answer();
        assert_eq!(answer.differs(&[1, 2], &task(8, &sampling)), None);
        let why = |prompt: &[TokenId], task: &AnswerTask| answer.differs(prompt, task).expect("another");
        assert!(why(&[1, 3], &task(8, &sampling)).starts_with("is to another prompt"));
        assert_eq!(why(&[1, 2], &task(9, &sampling)), "could have 8 tokens, -n is 9 now");
        assert!(why(&[1, 2], &task(8, &SamplingParams::default())).contains("--sampled or --seed"));
        assert!(why(&[1, 2], &task(8, &SamplingParams { seed: Some(6), ..sampling })).contains("--sampled or --seed"));
    }
}
