//! The data of a training: the model's own answers, kept in a file as they come, so that a run that was ended goes on where it was.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use selfspec_engine::{Engine, Generation, Prompt, Request, SamplingParams, SpeculationParams, TokenId};
use serde::{Deserialize, Serialize};

use super::work::{GO_ON, stale};
use crate::failure::Interrupted;
use crate::output::Ui;
use crate::progress::Steps;
use crate::signals::Pausing;

/// A prompt and what the model answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Kind of task.
    pub(crate) domain: String,
    /// The tokens of the prompt.
    pub(crate) prompt: Vec<TokenId>,
    /// The tokens of the answer.
    pub(crate) tokens: Vec<TokenId>,
    /// Most tokens that it could have.
    #[serde(default)]
    pub(crate) max_tokens: Option<usize>,
    /// Temperature that it was sampled at, and the seed if that is above 0.
    #[serde(default)]
    pub(crate) sampled: Option<(f32, Option<u64>)>,
}

impl Answer {
    /// What says that it is of another job: prompt, flags.
    fn differs(&self, prompt: &[TokenId], job: &Job) -> Option<String> {
        if self.prompt != prompt {
            return Some("is to another prompt: files, limits or their order have changed".to_owned());
        }
        let changed = self.max_tokens.filter(|n| *n != job.max_tokens);
        if let Some(n) = changed {
            return Some(format!("could have {n} tokens, -n is {} now", job.max_tokens));
        }
        let sampled = self.sampled.filter(|sampled| *sampled != job.sampled());
        sampled.map(|_| "was sampled otherwise: --sampled or --seed has changed".to_owned())
    }
}

/// One answer to be generated.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) domain: String,
    pub(crate) prompt: Prompt,
    pub(crate) sampling: SamplingParams,
    pub(crate) max_tokens: usize,
}

impl Job {
    fn sampled(&self) -> (f32, Option<u64>) {
        let temperature = self.sampling.temperature;
        (temperature, self.sampling.seed.filter(|_| temperature > 0.0))
    }
}

/// Requests under way at a time: more than a step takes, so that none waits for the next one to be read.
const UNDER_WAY: usize = 64;
/// How often a run without a terminal says how far it is.
const SAY: Duration = Duration::from_secs(30);

/// The answers in `path`, and those of `jobs` that are not in it yet, which are generated and appended. Jobs that leave no room in the context
/// have an empty answer.
///
/// # Errors
/// The file holds answers to other prompts, cannot be read or written, or the engine fails.
pub(crate) fn generate(engine: &Engine, what: &str, jobs: &[Job], path: &Path, ui: &Ui) -> anyhow::Result<Vec<Answer>> {
    let mut answers = read(path)?;
    for (line, (answer, job)) in answers.iter().zip(jobs).enumerate() {
        if let Some(why) = answer.differs(&engine.encode(&job.prompt)?, job) {
            return Err(stale(path, &format!("the answer in line {} {why}", line + 1)));
        }
    }
    if answers.len() >= jobs.len() {
        answers.truncate(jobs.len());
        return Ok(answers);
    }
    let cannot = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().create(true).append(true).open(path).with_context(cannot)?;
    let mut file = BufWriter::new(file);
    let steps = Steps::new(ui, what, jobs.len() as u64);
    let started = Instant::now();
    let (mut said, mut tokens, first) = (started, 0, answers.len());
    let mut under_way: VecDeque<(&Job, Vec<TokenId>, Option<Generation>)> = VecDeque::new();
    let mut waiting = jobs[first..].iter();
    (0..first).for_each(|_| steps.step());
    let pausing = Pausing::new();
    loop {
        if pausing.interrupted() {
            file.flush().with_context(cannot)?;
            ui.note(&format!("stopped after {} of {} answers; {GO_ON}", answers.len(), jobs.len()));
            return Err(Interrupted.into());
        }
        while under_way.len() < UNDER_WAY
            && let Some(job) = waiting.next()
        {
            under_way.push_back(submit(engine, job)?);
        }
        let Some((job, prompt, generation)) = under_way.pop_front() else { break };
        let generated = generation.map(Generation::wait).transpose()?.map_or(Vec::new(), |summary| summary.token_ids);
        tokens += generated.len();
        let answer = Answer {
            domain: job.domain.clone(),
            prompt,
            tokens: generated,
            max_tokens: Some(job.max_tokens),
            sampled: Some(job.sampled()),
        };
        serde_json::to_writer(&mut file, &answer).with_context(cannot)?;
        file.write_all(b"\n").with_context(cannot)?;
        answers.push(answer);
        steps.step();
        if said.elapsed() >= SAY {
            said = Instant::now();
            file.flush().with_context(cannot)?;
            let rate = tokens as f64 / started.elapsed().as_secs_f64();
            let each = started.elapsed().as_secs_f64() / (answers.len() - first) as f64;
            let left = each * (jobs.len() - answers.len()) as f64;
            let (n, of) = (answers.len(), jobs.len());
            ui.note(&format!("{what}: {n} of {of}, {rate:.0} tokens a second, {} left", minutes(left)));
        }
    }
    file.flush().with_context(cannot)?;
    file.get_ref().sync_all().with_context(cannot)?;
    Ok(answers)
}

fn submit<'j>(engine: &Engine, job: &'j Job) -> anyhow::Result<(&'j Job, Vec<TokenId>, Option<Generation>)> {
    let prompt = engine.encode(&job.prompt)?;
    if prompt.len() + 1 >= engine.context() {
        return Ok((job, Vec::new(), None));
    }
    let mut request = Request::new(Prompt::Tokens(prompt.clone()));
    request.max_tokens = Some(job.max_tokens.min(engine.context() - prompt.len() - 1).max(1));
    request.sampling = job.sampling.clone();
    request.speculation = SpeculationParams::off();
    Ok((job, prompt, Some(engine.submit(request)?)))
}

/// The whole lines of a file; what a crash left of the last one is cut off.
///
/// # Errors
/// It cannot be read, or a whole line is no answer.
fn read(path: &Path) -> anyhow::Result<Vec<Answer>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let cannot = || format!("cannot read {}", path.display());
    let mut answers = Vec::new();
    let (mut reader, mut line, mut whole) = (BufReader::new(file), Vec::new(), 0u64);
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line).with_context(cannot)?;
        if !line.ends_with(b"\n") {
            break;
        }
        let answer = serde_json::from_slice(&line);
        answers.push(answer.map_err(|e| stale(path, &format!("line {} is no answer: {e}", answers.len() + 1)))?);
        whole += n as u64;
    }
    if whole < std::fs::metadata(path).with_context(cannot)?.len() {
        let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
        file.set_len(whole).with_context(cannot)?;
    }
    Ok(answers)
}

/// A time in words.
pub(crate) fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            domain: "chat".to_owned(),
            prompt: vec![1, 2],
            tokens: vec![3],
            max_tokens: Some(8),
            sampled: Some((0.8, Some(5))),
        }
    }

    #[test]
    fn a_line_that_a_crash_cut_short_is_cut_off() {
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
    fn answers_that_were_made_otherwise_are_told_from_those_of_now() {
        let sampling = SamplingParams { temperature: 0.8, seed: Some(5), ..SamplingParams::default() };
        let job = |max_tokens, sampling: &SamplingParams| Job {
            domain: "chat".to_owned(),
            prompt: Prompt::Tokens(vec![1, 2]),
            sampling: sampling.clone(),
            max_tokens,
        };
        let answer = answer();
        assert_eq!(answer.differs(&[1, 2], &job(8, &sampling)), None);
        let why = |prompt: &[TokenId], job: &Job| answer.differs(prompt, job).expect("another");
        assert!(why(&[1, 3], &job(8, &sampling)).starts_with("is to another prompt"));
        assert_eq!(why(&[1, 2], &job(9, &sampling)), "could have 8 tokens, -n is 9 now");
        assert!(why(&[1, 2], &job(8, &SamplingParams::default())).contains("--sampled or --seed"));
        assert!(why(&[1, 2], &job(8, &SamplingParams { seed: Some(6), ..sampling })).contains("--sampled or --seed"));
    }

    #[test]
    fn times_are_told_in_the_unit_that_suits_them() {
        assert_eq!([8.2, 600.0, 9000.0].map(minutes), ["8 s", "10 min", "2.5 h"]);
    }
}
