//! Rounds of draft, verification and rollback by hand, on the engine's own backend, beside plain
//! decoding of the same tokens. After each round the caches of both must agree in length, in pages
//! and in the logits computed from them.
//!
//! The drafts are the tokens of the model's answer, with one made wrong: every accepted length
//! occurs, however good the drafter is.

use std::hash::{Hash, Hasher};

use selfspec_engine::Engine;
use selfspec_model::{Backend, BackendError, Enter, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId};
use selfspec_speculate::DraftPath;

use super::check::{DoctorCheck, DoctorFinding};
use crate::error::LabError;

/// Tokens drafted a round.
const DRAFTS: usize = 4;
/// Most sequences in a step.
const TOGETHER: usize = 4;

/// A prompt with its plain answer.
#[derive(Debug, Clone)]
pub(super) struct AnswerText {
    pub(super) line: usize,
    pub(super) tokens: Vec<TokenId>,
    pub(super) prompt_len: usize,
}

/// What the rounds showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RoundObservations {
    pub(super) sequences: usize,
    pub(super) rounds: usize,
    /// Rollbacks: rounds of one sequence in which a draft was rejected.
    pub(super) rollbacks: usize,
    /// Pages after the last round: (of speculation, of plain decoding).
    pub(super) pages: (usize, usize),
    /// Most pages of speculation within a round.
    pub(super) peak: usize,
    pub(super) wrong: Option<RoundFault>,
}

/// The first thing that was wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RoundFault {
    /// The cache's length is not the committed tokens less one.
    Length { line: usize, round: usize, committed: usize, got: usize },
    /// Verification gave other logits than plain decoding.
    Verified { line: usize, round: usize, token: usize },
    /// A draft from the cache after rounds differs from one from the cache of plain decoding.
    Stale { line: usize, round: usize },
    /// Rounds hold more or fewer pages than plain decoding.
    Pages { round: usize, speculation: usize, plain: usize },
}

/// Runs the rounds on the longest answers.
pub(super) fn run(
    engine: &Engine,
    path: &DraftPath,
    texts: &[AnswerText],
) -> Result<Option<RoundObservations>, LabError> {
    let mut texts: Vec<AnswerText> =
        texts.iter().filter(|t| t.tokens.len() >= t.prompt_len + DRAFTS + 2).cloned().collect();
    texts.sort_by_key(|t| std::cmp::Reverse(t.tokens.len() - t.prompt_len));
    texts.truncate(TOGETHER);
    let path = path.clone();
    Ok(engine.exclusive(move |backend| {
        let page = backend.page_positions();
        let pages = |text: &AnswerText| 2 * (text.tokens.len() + DRAFTS + 1).div_ceil(page);
        let mut free = backend.free_pages();
        texts.retain(|text| {
            let fits = pages(text) <= free;
            free -= if fits { pages(text) } else { 0 };
            fits
        });
        if texts.is_empty() {
            return Ok(None);
        }
        let mut hands = HandRounds::new(backend, &path, &texts);
        let seen = hands.all();
        hands.free();
        seen.map(Some)
    })??)
}

/// The rounds under way.
struct HandRounds<'a> {
    backend: &'a mut dyn Backend,
    path: &'a DraftPath,
    full: LayerPlan,
    texts: &'a [AnswerText],
    spec: Vec<SeqId>,  // (text)
    plain: Vec<SeqId>, // (text)
    committed: Vec<usize>,
    out: StepOutput,
    seen: RoundObservations,
}

impl<'a> HandRounds<'a> {
    fn new(backend: &'a mut dyn Backend, path: &'a DraftPath, texts: &'a [AnswerText]) -> Self {
        let spec = texts.iter().map(|_| backend.create()).collect();
        let plain = texts.iter().map(|_| backend.create()).collect();
        HandRounds {
            full: LayerPlan::full(backend.n_layers()),
            backend,
            path,
            texts,
            spec,
            plain,
            committed: texts.iter().map(|t| t.prompt_len).collect(),
            out: StepOutput::default(),
            seen: RoundObservations { sequences: texts.len(), ..RoundObservations::default() },
        }
    }

    fn free(self) {
        self.spec.iter().chain(&self.plain).for_each(|seq| self.backend.free(*seq));
    }

    fn used(&self) -> usize {
        self.backend.total_pages() - self.backend.free_pages()
    }

    fn row(&self, seq: SeqId, pos: usize, token: TokenId) -> Row {
        Row { seq, pos, token, enter: Enter::Token, plan: self.full.clone(), keep: false, readout: Readout::Head }
    }

    fn draft_row(&self, seq: SeqId, pos: usize, token: TokenId) -> Row {
        let keep = self.path.plan.exact_prefix() > 0;
        Row { plan: self.path.plan.clone(), keep, readout: self.path.readout, ..self.row(seq, pos, token) }
    }

    /// Row i of a round of text t: its token, where the draft at place `wrong` is not the model's
    /// token.
    fn token(&self, t: usize, i: usize, wrong: usize) -> TokenId {
        let answered = self.texts[t].tokens[self.committed[t] - 1 + i];
        if i == wrong + 1 { if answered == 0 { 1 } else { answered - 1 } } else { answered }
    }

    fn all(&mut self) -> Result<RoundObservations, BackendError> {
        for seqs in [self.spec.clone(), self.plain.clone()] {
            let before = self.used();
            for (t, seq) in seqs.iter().enumerate() {
                self.read(*seq, t, 0, self.committed[t] - 1)?;
            }
            let pages = self.used() - before;
            if seqs == self.spec { self.seen.pages.0 = pages } else { self.seen.pages.1 = pages }
        }
        let room = |hands: &Self| hands.texts.iter().zip(&hands.committed).all(|(t, n)| n + DRAFTS < t.tokens.len());
        while self.seen.wrong.is_none() && room(self) {
            self.round()?;
        }
        Ok(self.seen.clone())
    }

    /// Commits positions of text t as plain decoding does, and returns the hashes of their logits.
    fn read(&mut self, seq: SeqId, t: usize, from: usize, to: usize) -> Result<Vec<u64>, BackendError> {
        let mut marks = Vec::new();
        for pos in from..to {
            let row = self.row(seq, pos, self.texts[t].tokens[pos]);
            self.backend.step(&[row], &mut self.out)?;
            self.backend.set_len(seq, pos + 1)?;
            marks.push(logits_hash(self.out.logits(0)));
        }
        Ok(marks)
    }

    fn round(&mut self) -> Result<(), BackendError> {
        self.seen.rounds += 1;
        let (round, before, texts) = (self.seen.rounds, self.used(), self.texts);
        // The place of the wrong draft; at DRAFTS none is wrong.
        let wrong = |t: usize| (round + 2 * t) % (DRAFTS + 1);
        let mut first_drafts = Vec::new();
        for i in 0..DRAFTS {
            let rows: Vec<Row> = (0..texts.len())
                .map(|t| self.draft_row(self.spec[t], self.committed[t] - 1 + i, self.token(t, i, wrong(t))))
                .collect();
            self.backend.step(&rows, &mut self.out)?;
            if i == 0 {
                first_drafts = (0..texts.len()).map(|t| logits_hash(self.out.logits(t))).collect();
            }
        }
        let kept = self.path.plan.exact_prefix() > 0;
        let verify = |t: usize, i: usize| {
            let enter = if kept && i < DRAFTS { Enter::Kept } else { Enter::Token };
            Row { enter, ..self.row(self.spec[t], self.committed[t] - 1 + i, self.token(t, i, wrong(t))) }
        };
        let rows: Vec<Row> =
            (0..texts.len()).flat_map(|t| (0..=DRAFTS).map(move |i| (t, i))).map(|(t, i)| verify(t, i)).collect();
        self.backend.step(&rows, &mut self.out)?;
        self.seen.peak = self.seen.peak.max(self.seen.pages.0 + self.used() - before);
        let verified: Vec<u64> = (0..rows.len()).map(|i| logits_hash(self.out.logits(i))).collect();
        let old = self.committed.clone();
        for (t, text) in texts.iter().enumerate() {
            self.seen.rollbacks += usize::from(wrong(t) < DRAFTS);
            self.committed[t] += wrong(t) + 1;
            let expected = self.committed[t] - 1;
            self.backend.set_len(self.spec[t], expected)?;
            let got = self.backend.kv_len(self.spec[t])?;
            if got != expected {
                let (line, committed) = (text.line, self.committed[t]);
                self.seen.wrong = Some(RoundFault::Length { line, round, committed, got });
                return Ok(());
            }
        }
        self.seen.pages.0 = self.seen.pages.0 + self.used() - before;
        self.compare_with_plain(&old, &first_drafts, &verified)
    }

    /// Decodes the same tokens plainly, and compares.
    fn compare_with_plain(
        &mut self,
        old: &[usize],
        first_drafts: &[u64],
        verified: &[u64],
    ) -> Result<(), BackendError> {
        let (round, before, texts) = (self.seen.rounds, self.used(), self.texts);
        for t in 0..texts.len() {
            let (line, seq, start) = (texts[t].line, self.plain[t], old[t] - 1);
            let row = self.draft_row(seq, start, texts[t].tokens[start]);
            self.backend.step(&[row], &mut self.out)?;
            let draft = logits_hash(self.out.logits(0));
            self.backend.set_len(seq, start)?;
            if draft != first_drafts[t] {
                self.seen.wrong.get_or_insert(RoundFault::Stale { line, round });
            }
            let marks = self.read(seq, t, start, self.committed[t] - 1)?;
            let own = &verified[t * (DRAFTS + 1)..];
            if let Some(i) = (0..marks.len()).find(|i| marks[*i] != own[*i]) {
                let token = start + i + 1 - texts[t].prompt_len;
                self.seen.wrong.get_or_insert(RoundFault::Verified { line, round, token });
            }
        }
        self.seen.pages.1 = self.seen.pages.1 + self.used() - before;
        let (speculation, plain) = self.seen.pages;
        if speculation != plain {
            self.seen.wrong.get_or_insert(RoundFault::Pages { round, speculation, plain });
        }
        Ok(())
    }
}

/// A hash of the bits of a row of logits. Shape: (token).
fn logits_hash(logits: &[f32]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    logits.iter().for_each(|l| l.to_bits().hash(&mut hasher));
    hasher.finish()
}

const ROLLBACK: &str = "rollback";
const CACHE: &str = "cached states";
const MEMORY: &str = "memory in a batch";

/// A rollback of wrong length.
pub(super) fn short_rollback(words: String) -> DoctorCheck {
    DoctorCheck::fault(
        ROLLBACK,
        DoctorFinding {
            cause: "rollback",
            symptom: "a word is repeated now and then, and long outputs decay".to_owned(),
            words,
            remedy: "make the cache's length committed - 1 after every round; this is a fault of the engine, please report it"
                .to_owned(),
        },
    )
}

/// Three checks: of the rollback, of the cache after rounds, and of the pages that they take.
pub(super) fn judge_rounds(seen: &RoundObservations) -> [DoctorCheck; 3] {
    let rounds = format!("{} rounds of {} sequences", seen.rounds, seen.sequences);
    let mut checks = [
        DoctorCheck::fine(
            ROLLBACK,
            format!("after {rounds}, {} of them cut short, the cache held committed - 1 positions", seen.rollbacks),
        ),
        DoctorCheck::fine(
            CACHE,
            format!(
                "after each of {rounds} the next draft and the verified logits were those of plain decoding, bit for bit"
            ),
        ),
        DoctorCheck::fine(
            MEMORY,
            format!(
                "{} pages with speculation, {} with plain decoding of the same tokens (up to {} within a round)",
                seen.pages.0, seen.pages.1, seen.peak
            ),
        ),
    ];
    let stale = |words: String| {
        DoctorCheck::fault(
            CACHE,
            DoctorFinding {
                cause: "stale-kv",
                symptom: "long outputs decay late".to_owned(),
                words,
                remedy: "trace the accepted lengths (`run --trace`); this is a fault of the engine, please report it"
                    .to_owned(),
            },
        )
    };
    match &seen.wrong {
        None => {}
        Some(RoundFault::Length { line, round, committed, got }) => {
            checks[0] = short_rollback(format!(
                "after round {round} of the prompt of line {line}, with {committed} tokens committed, the cache holds {got} positions and not {}: the \
                 rollback is {} short",
                committed - 1,
                positions(got.abs_diff(committed - 1)),
            ));
            checks[1] = DoctorCheck::not_checked(CACHE, "the rollback is wrong");
            checks[2] = DoctorCheck::not_checked(MEMORY, "the rollback is wrong");
        }
        Some(RoundFault::Verified { line, round, token }) => {
            checks[1] = stale(format!(
                "in round {round} of the prompt of line {line} verification gave other logits for token {token} than plain decoding"
            ));
        }
        Some(RoundFault::Stale { line, round }) => {
            checks[1] = stale(format!(
                "round {round} of the prompt of line {line} drafted other logits from the cache that the rounds before had left than from the cache \
                 of plain decoding"
            ));
        }
        Some(RoundFault::Pages { round, speculation, plain }) => {
            checks[2] = DoctorCheck::fault(
                MEMORY,
                DoctorFinding {
                    cause: "own-cache",
                    symptom: "memory grows in a batch".to_owned(),
                    words: format!(
                        "after round {round} speculation holds {speculation} pages of the cache, plain decoding of the same tokens {plain}"
                    ),
                    remedy: "draft and verify in the one cache; this is a fault of the engine, please report it"
                        .to_owned(),
                },
            );
        }
    }
    let [rollback, cache, memory] = checks;
    [
        rollback.with("rounds", seen.rounds).with("rollbacks", seen.rollbacks),
        cache,
        memory.with("pages", seen.pages.0).with("plain_pages", seen.pages.1).with("peak_pages", seen.peak),
    ]
}

fn positions(n: usize) -> String {
    if n == 1 { "one position".to_owned() } else { format!("{n} positions") }
}

/// The three checks if no round can be run.
pub(super) fn unchecked_rounds(why: &str) -> [DoctorCheck; 3] {
    [ROLLBACK, CACHE, MEMORY].map(|name| DoctorCheck::not_checked(name, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckResult;

    #[test]
    fn what_is_wrong_is_told_by_its_own_check() {
        let fault = |wrong| {
            let seen =
                RoundObservations { sequences: 2, rounds: 3, rollbacks: 4, pages: (5, 5), peak: 6, wrong: Some(wrong) };
            let checks = judge_rounds(&seen);
            let faults: Vec<_> = checks.iter().filter(|c| c.result == CheckResult::Fault).collect();
            assert_eq!(faults.len(), 1, "{checks:?}");
            (faults[0].finding.as_ref().expect("a fault has one").cause, faults[0].words.clone())
        };
        let (cause, words) = fault(RoundFault::Length { line: 7, round: 3, committed: 40, got: 40 });
        assert_eq!(cause, "rollback");
        assert!(
            words.contains("line 7")
                && words.contains("holds 40 positions and not 39")
                && words.contains("one position short"),
            "{words}"
        );
        assert_eq!(fault(RoundFault::Stale { line: 1, round: 2 }).0, "stale-kv");
        assert_eq!(fault(RoundFault::Verified { line: 1, round: 2, token: 9 }).0, "stale-kv");
        assert_eq!(fault(RoundFault::Pages { round: 2, speculation: 9, plain: 6 }).0, "own-cache");
        let sound = judge_rounds(&RoundObservations {
            sequences: 1,
            rounds: 3,
            rollbacks: 2,
            pages: (2, 2),
            peak: 3,
            wrong: None,
        });
        assert!(sound.iter().all(|c| c.result == CheckResult::Fine), "{sound:?}");
    }
}
