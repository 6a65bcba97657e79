//! The prompts, plain and with drafts: whether the outputs are equal, and how many drafts are
//! accepted, by kind of prompt and from the beginning of an answer to its end.

use std::collections::{BTreeMap, VecDeque};

use selfspec_engine::{Engine, EngineError, Event, Generation, Request};
use selfspec_model::TokenId;
use selfspec_speculate::{RoundTrace, SequenceError, SpecStats, SpeculationParams};
use serde_json::json;

use super::check::{DoctorCheck, DoctorFinding};
use super::rounds::{AnswerText, short_rollback};
use crate::error::LabError;
use crate::progress::Stage;
use crate::prompts::{PromptCase, PromptStyle};
use crate::statistics::acceptance_at;

/// Requests under way at a time.
const UNDER_WAY: usize = 16;
/// Rounds that a trace keeps: as many as the longest answer has.
const TRACE: usize = 1 << 20;
/// Shortest answer whose first and last quarter are compared.
const LONG: usize = 48;

/// The answer to a prompt, or the part before an error.
#[derive(Debug)]
pub(super) struct DoctorAnswer {
    pub(super) ids: Vec<TokenId>,
    prompt_len: usize,
    stats: SpecStats,
    trace: Vec<RoundTrace>,
    error: Option<EngineError>,
    rounds: usize, // counted from the tokens, for answers that end in an error
}

/// Runs all prompts, some at a time.
pub(super) fn run(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    max_tokens: usize,
    speculation: &SpeculationParams,
    stage: &Stage<'_>,
) -> Result<Vec<DoctorAnswer>, LabError> {
    let (mut under_way, mut answers): (VecDeque<Generation>, _) = (VecDeque::new(), Vec::new());
    for case in prompts {
        if under_way.len() == UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            answers.push(collect(first));
            stage.step();
        }
        let mut request = Request::new(case.prompt(style));
        request.max_tokens = Some(max_tokens);
        request.speculation = SpeculationParams { trace: TRACE, ..speculation.clone() };
        let failed = |source| LabError::Prompt { line: case.line, source };
        under_way.push_back(engine.submit(request).map_err(failed)?);
    }
    for generation in under_way {
        answers.push(collect(generation));
        stage.step();
    }
    Ok(answers)
}

fn collect(generation: Generation) -> DoctorAnswer {
    let mut answer = DoctorAnswer {
        ids: Vec::new(),
        prompt_len: 0,
        stats: SpecStats::default(),
        trace: Vec::new(),
        error: Some(EngineError::Stopped),
        rounds: 0,
    };
    for event in generation {
        match event {
            Event::Prompt { tokens } => answer.prompt_len = tokens,
            Event::Token(token) => {
                answer.ids.push(token.id);
                answer.rounds += usize::from(!token.source.is_draft()); // the model's own token ends a round
            }
            Event::Done(summary) => {
                (answer.stats, answer.trace, answer.error) = (summary.stats, summary.trace, None);
            }
            Event::Failed(error) => answer.error = Some(error),
        }
    }
    answer
}

impl DoctorAnswer {
    /// The round that gave the `index`-th token, from 1; the prompt's pass is 0.
    fn round_of(&self, index: usize) -> usize {
        let at = self.prompt_len + index;
        self.trace.iter().position(|r| (r.committed..r.committed + r.gained).contains(&at)).unwrap_or(self.rounds)
    }
}

/// The prompts' tokens with their plain answers.
pub(super) fn texts(
    engine: &Engine,
    prompts: &[PromptCase],
    style: PromptStyle,
    plain: &[DoctorAnswer],
) -> Result<Vec<AnswerText>, LabError> {
    let text = |(case, answer): (&PromptCase, &DoctorAnswer)| {
        let mut tokens = engine.encode(&case.prompt(style))?;
        let prompt_len = tokens.len();
        tokens.extend(&answer.ids);
        Ok(AnswerText { line: case.line, tokens, prompt_len })
    };
    prompts.iter().zip(plain).map(text).collect()
}

/// The plain answers, if all are whole.
///
/// # Errors
/// The first error of plain decoding, which leaves nothing to compare with.
pub(super) fn whole_answers(prompts: &[PromptCase], plain: Vec<DoctorAnswer>) -> Result<Vec<DoctorAnswer>, LabError> {
    let mut answers = Vec::new();
    for (case, mut answer) in prompts.iter().zip(plain) {
        if let Some(error) = answer.error.take() {
            return Err(LabError::PlainPrompt { line: case.line, source: error });
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// Whether the outputs of speculation are those of plain decoding.
pub(super) fn equality(prompts: &[PromptCase], plain: &[DoctorAnswer], spec: &[DoctorAnswer]) -> DoctorCheck {
    const NAME: &str = "output";
    for ((case, plain), spec) in prompts.iter().zip(plain).zip(spec) {
        let line = case.line;
        match &spec.error {
            Some(EngineError::Spec(SequenceError::KvLength { expected, got, .. })) => {
                return DoctorCheck {
                    name: NAME,
                    ..short_rollback(format!(
                        "prompt of line {line}: after round {}, at token {}, the cache held {got} positions and not {expected}: the engine ended the request",
                        spec.rounds.saturating_sub(1),
                        spec.ids.len()
                    ))
                };
            }
            Some(error) => {
                return differs(
                    NAME,
                    format!(
                        "prompt of line {line}: with speculation the request ended after {} tokens: {error}",
                        spec.ids.len()
                    ),
                );
            }
            None if plain.ids != spec.ids => {
                let at = first_difference(&plain.ids, &spec.ids);
                let id = |ids: &[TokenId]| ids.get(at).map_or("the end".to_owned(), |id| format!("token {id}"));
                return differs(
                    NAME,
                    format!(
                        "prompt of line {line}: equal up to token {at}; there, in round {}, plain decoding has {}, speculation {}",
                        spec.round_of(at),
                        id(&plain.ids),
                        id(&spec.ids)
                    ),
                );
            }
            None => {}
        }
    }
    let tokens: usize = plain.iter().map(|a| a.ids.len()).sum();
    let mut all = SpecStats::default();
    spec.iter().for_each(|a| all.merge(&a.stats));
    if all.accepted == 0 && all.rejected == 0 {
        return DoctorCheck::not_checked(NAME, format!("{tokens} tokens are equal, but nothing was drafted"));
    }
    let words = format!(
        "{tokens} tokens of {} prompts are those of plain decoding, over {} rounds ({} drafts accepted, {} refused)",
        plain.len(),
        all.rounds,
        all.accepted,
        all.rejected
    );
    DoctorCheck::fine(NAME, words).with("tokens", tokens).with("accepted", all.accepted).with("rejected", all.rejected)
}

fn differs(name: &'static str, words: String) -> DoctorCheck {
    let finding = DoctorFinding {
        cause: "output",
        symptom: "output is not that of plain decoding".to_owned(),
        words,
        remedy: "`selfspec verify` narrows it down; this is a fault of the engine, please report it".to_owned(),
    };
    DoctorCheck::fault(name, finding)
}

/// The index of the first token that differs.
fn first_difference(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Acceptance of drafts in all, and by category.
#[derive(Debug, Default)]
pub(super) struct DraftAcceptance {
    pub(super) all: SpecStats,
    pub(super) by_category: BTreeMap<String, SpecStats>,
    /// Prompts of each category.
    pub(super) prompts: BTreeMap<String, usize>,
}

impl DraftAcceptance {
    pub(super) fn of(prompts: &[PromptCase], spec: &[DoctorAnswer]) -> DraftAcceptance {
        let mut acceptance = DraftAcceptance::default();
        for (case, answer) in prompts.iter().zip(spec) {
            acceptance.all.merge(&answer.stats);
            acceptance.by_category.entry(case.category.clone()).or_default().merge(&answer.stats);
            *acceptance.prompts.entry(case.category.clone()).or_default() += 1;
        }
        acceptance
    }

    /// Acceptance at a place of the round, given that the drafts before it were accepted; beyond
    /// the last measured place as there.
    pub(super) fn at(&self, place: usize) -> f64 {
        acceptance_at(&self.all, place)
    }
}

/// Accepted and judged drafts of a quarter of the answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct AnswerQuarter {
    accepted: usize,
    judged: usize,
}

impl AnswerQuarter {
    fn share(self) -> f64 {
        self.accepted as f64 / self.judged.max(1) as f64
    }
}

/// Whether fewer drafts are accepted at the end of long answers than at their beginning.
pub(super) fn decay(spec: &[DoctorAnswer]) -> DoctorCheck {
    const NAME: &str = "late decay";
    let (mut first, mut last, mut long) = (AnswerQuarter::default(), AnswerQuarter::default(), 0);
    for answer in spec.iter().filter(|a| a.ids.len() >= LONG) {
        long += 1;
        for round in &answer.trace {
            let quarter = 4 * round.committed.saturating_sub(answer.prompt_len) / answer.ids.len();
            let part = match quarter {
                0 => &mut first,
                3 => &mut last,
                _ => continue,
            };
            part.accepted += round.accepted;
            part.judged += round.drafted.min(round.accepted + 1);
        }
    }
    if first.judged < 30 || last.judged < 30 {
        let words = format!(
            "too few drafts in answers of {LONG} tokens and more: longer answers (-n) or more prompts give more"
        );
        return DoctorCheck::not_checked(NAME, words);
    }
    judge_decay(NAME, first, last, long)
}

fn judge_decay(name: &'static str, first: AnswerQuarter, last: AnswerQuarter, answers: usize) -> DoctorCheck {
    let (a, b) = (first.share(), last.share());
    let words = format!("acceptance is {a:.2} in the first quarter of {answers} long answers and {b:.2} in the last");
    let pooled = (first.accepted + last.accepted) as f64 / (first.judged + last.judged) as f64;
    let noise = (pooled * (1.0 - pooled) * (1.0 / first.judged as f64 + 1.0 / last.judged as f64)).sqrt();
    let check = match a - b > 0.15 && a - b > 3.0 * noise {
        false => DoctorCheck::fine(name, words),
        true => DoctorCheck::note(
            name,
            DoctorFinding {
                cause: "decay",
                symptom: "drafts fare worse late in long outputs".to_owned(),
                words: format!("{words}; where `cached states` is ok that lies in the text and not in stale K and V"),
                remedy:
                    "nothing, if the answers really grow harder; `run --trace` shows the accepted length of each round"
                        .to_owned(),
            },
        ),
    };
    check.with("first_quarter", json!(a)).with("last_quarter", json!(b))
}

#[cfg(test)]
mod tests {
    use selfspec_model::SeqId;
    use selfspec_speculate::RoundReason;

    use super::*;
    use crate::doctor::check::CheckResult;
    use crate::prompts;

    fn answer(ids: &[TokenId], gained: &[usize]) -> DoctorAnswer {
        let mut committed = 10;
        let round = |gained: &usize| {
            let trace = RoundTrace {
                committed,
                drafter: None,
                drafted: 4,
                accepted: gained - 1,
                gained: *gained,
                reason: RoundReason::Always,
            };
            committed += gained;
            trace
        };
        let trace = gained.iter().map(round).collect();
        let mut stats = SpecStats::default();
        (stats.accepted, stats.rejected) = (3, 1);
        DoctorAnswer { ids: ids.to_vec(), prompt_len: 10, stats, trace, error: None, rounds: gained.len() }
    }

    #[test]
    fn the_token_and_the_round_where_outputs_part_are_named() {
        let cases = prompts::built_in();
        let plain = answer(&[1, 2, 3, 4, 5, 6], &[1, 1, 1, 1, 1, 1]);
        let same = answer(&[1, 2, 3, 4, 5, 6], &[1, 3, 2]);
        assert_eq!(equality(&cases[..1], std::slice::from_ref(&plain), &[same]).result, CheckResult::Fine);
        let other = answer(&[1, 2, 3, 4, 4, 6], &[1, 3, 2]);
        let check = equality(&cases[..1], std::slice::from_ref(&plain), &[other]);
        assert_eq!(check.result, CheckResult::Fault);
        let expected =
            "prompt of line 1: equal up to token 4; there, in round 2, plain decoding has token 5, speculation token 4";
        assert_eq!(check.words, expected);
        let mut short = answer(&[1, 2, 3, 4], &[]);
        short.rounds = 3;
        short.error = Some(EngineError::Spec(SequenceError::KvLength { seq: SeqId(0), expected: 13, got: 14 }));
        let check = equality(&cases[..1], &[plain], &[short]);
        assert_eq!(check.finding.as_ref().map(|f| f.cause), Some("rollback"));
        assert!(check.words.contains("after round 2, at token 4, the cache held 14 positions and not 13"), "{check:?}");
    }

    #[test]
    fn a_fall_that_chance_explains_is_none() {
        let of = |accepted, of_last| {
            let part = |accepted| AnswerQuarter { accepted, judged: 100 };
            judge_decay("late decay", part(accepted), part(of_last), 5).result
        };
        assert_eq!((of(70, 69), of(70, 55), of(70, 40)), (CheckResult::Fine, CheckResult::Fine, CheckResult::Note));
        assert_eq!(of(40, 70), CheckResult::Fine, "to fare better is no decay");
    }
}
