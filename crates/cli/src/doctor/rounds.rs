//! Rounds of draft, verification and rollback by hand, on the engine's own backend, beside plain decoding of the same tokens: after each
//! one the caches of both must agree in length, in pages and in what comes of them.
//!
//! The drafts are the tokens that the model said, with one made wrong: so every accepted length occurs, whatever the drafter is worth.

use std::hash::{Hash, Hasher};

use selfspec_engine::{
    Backend, BackendError, DraftPath, Engine, Enter, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId,
};

use super::check::{Check, Finding};

/// Tokens drafted a round.
const DRAFTS: usize = 4;
/// Sequences in a step, at most.
const TOGETHER: usize = 4;

/// A prompt with its plain answer.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) line: usize,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) prompt_len: usize,
}

/// What was seen in the rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) sequences: usize,
    pub(crate) rounds: usize,
    /// Rollbacks: a round of one sequence of which a draft was refused.
    pub(crate) rollbacks: usize,
    /// Pages after the last round: of speculation, of plain decoding.
    pub(crate) pages: (usize, usize),
    /// Most pages of speculation within a round.
    pub(crate) peak: usize,
    pub(crate) wrong: Option<Wrong>,
}

/// The first thing that was not as it must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wrong {
    /// The cache's length is not the committed tokens less one.
    Length { line: usize, round: usize, committed: usize, got: usize },
    /// Verification gave other logits than plain decoding.
    Verified { line: usize, round: usize, token: usize },
    /// A draft from the cache that rounds left behind is not what it is from the cache of plain decoding.
    Stale { line: usize, round: usize },
    /// Rounds left more or fewer pages behind than plain decoding.
    Pages { round: usize, speculation: usize, plain: usize },
}

/// Runs the rounds on the longest answers.
pub(crate) fn run(engine: &Engine, path: &DraftPath, texts: &[Text]) -> anyhow::Result<Option<Seen>> {
    let mut texts: Vec<Text> = texts.iter().filter(|t| t.tokens.len() >= t.prompt_len + DRAFTS + 2).cloned().collect();
    texts.sort_by_key(|t| std::cmp::Reverse(t.tokens.len() - t.prompt_len));
    texts.truncate(TOGETHER);
    let path = path.clone();
    Ok(engine.exclusive(move |backend| {
        let page = backend.page_positions();
        let pages = |text: &Text| 2 * (text.tokens.len() + DRAFTS + 1).div_ceil(page);
        let mut free = backend.free_pages();
        texts.retain(|text| {
            let fits = pages(text) <= free;
            free -= if fits { pages(text) } else { 0 };
            fits
        });
        if texts.is_empty() {
            return Ok(None);
        }
        let mut hands = Hands::new(backend, &path, &texts);
        let seen = hands.all();
        hands.free();
        seen.map(Some)
    })??)
}

/// The rounds under way.
struct Hands<'a> {
    backend: &'a mut dyn Backend,
    path: &'a DraftPath,
    full: LayerPlan,
    texts: &'a [Text],
    spec: Vec<SeqId>,  // (text)
    plain: Vec<SeqId>, // (text)
    committed: Vec<usize>,
    out: StepOutput,
    seen: Seen,
}

impl<'a> Hands<'a> {
    fn new(backend: &'a mut dyn Backend, path: &'a DraftPath, texts: &'a [Text]) -> Self {
        let spec = texts.iter().map(|_| backend.create()).collect();
        let plain = texts.iter().map(|_| backend.create()).collect();
        Hands {
            full: LayerPlan::full(backend.n_layers()),
            backend,
            path,
            texts,
            spec,
            plain,
            committed: texts.iter().map(|t| t.prompt_len).collect(),
            out: StepOutput::default(),
            seen: Seen { sequences: texts.len(), ..Seen::default() },
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

    /// Row i of a round of text t: its token, where the draft at place `wrong` is not what the model said.
    fn token(&self, t: usize, i: usize, wrong: usize) -> TokenId {
        let said = self.texts[t].tokens[self.committed[t] - 1 + i];
        if i == wrong + 1 { if said == 0 { 1 } else { said - 1 } } else { said }
    }

    fn all(&mut self) -> Result<Seen, BackendError> {
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

    /// Commits positions of text t as plain decoding does, and gives the marks of their logits.
    fn read(&mut self, seq: SeqId, t: usize, from: usize, to: usize) -> Result<Vec<u64>, BackendError> {
        let mut marks = Vec::new();
        for pos in from..to {
            let row = self.row(seq, pos, self.texts[t].tokens[pos]);
            self.backend.step(&[row], &mut self.out)?;
            self.backend.set_len(seq, pos + 1)?;
            marks.push(mark(self.out.logits(0)));
        }
        Ok(marks)
    }

    fn round(&mut self) -> Result<(), BackendError> {
        self.seen.rounds += 1;
        let (round, before, texts) = (self.seen.rounds, self.used(), self.texts);
        // The place of the wrong draft; at DRAFTS all are right.
        let wrong = |t: usize| (round + 2 * t) % (DRAFTS + 1);
        let mut first_drafts = Vec::new();
        for i in 0..DRAFTS {
            let rows: Vec<Row> = (0..texts.len())
                .map(|t| self.draft_row(self.spec[t], self.committed[t] - 1 + i, self.token(t, i, wrong(t))))
                .collect();
            self.backend.step(&rows, &mut self.out)?;
            if i == 0 {
                first_drafts = (0..texts.len()).map(|t| mark(self.out.logits(t))).collect();
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
        let verified: Vec<u64> = (0..rows.len()).map(|i| mark(self.out.logits(i))).collect();
        let old = self.committed.clone();
        for (t, text) in texts.iter().enumerate() {
            self.seen.rollbacks += usize::from(wrong(t) < DRAFTS);
            self.committed[t] += wrong(t) + 1;
            let expected = self.committed[t] - 1;
            self.backend.set_len(self.spec[t], expected)?;
            let got = self.backend.kv_len(self.spec[t])?;
            if got != expected {
                let (line, committed) = (text.line, self.committed[t]);
                self.seen.wrong = Some(Wrong::Length { line, round, committed, got });
                return Ok(());
            }
        }
        self.seen.pages.0 = self.seen.pages.0 + self.used() - before;
        self.beside(&old, &first_drafts, &verified)
    }

    /// The same tokens by plain decoding, and what both have come to.
    fn beside(&mut self, old: &[usize], first_drafts: &[u64], verified: &[u64]) -> Result<(), BackendError> {
        let (round, before, texts) = (self.seen.rounds, self.used(), self.texts);
        for t in 0..texts.len() {
            let (line, seq, start) = (texts[t].line, self.plain[t], old[t] - 1);
            let row = self.draft_row(seq, start, texts[t].tokens[start]);
            self.backend.step(&[row], &mut self.out)?;
            let draft = mark(self.out.logits(0));
            self.backend.set_len(seq, start)?;
            if draft != first_drafts[t] {
                self.seen.wrong.get_or_insert(Wrong::Stale { line, round });
            }
            let marks = self.read(seq, t, start, self.committed[t] - 1)?;
            let own = &verified[t * (DRAFTS + 1)..];
            if let Some(i) = (0..marks.len()).find(|i| marks[*i] != own[*i]) {
                let token = start + i + 1 - texts[t].prompt_len;
                self.seen.wrong.get_or_insert(Wrong::Verified { line, round, token });
            }
        }
        self.seen.pages.1 = self.seen.pages.1 + self.used() - before;
        let (speculation, plain) = self.seen.pages;
        if speculation != plain {
            self.seen.wrong.get_or_insert(Wrong::Pages { round, speculation, plain });
        }
        Ok(())
    }
}

/// The bits of a row of logits in short.
fn mark(logits: &[f32]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    logits.iter().for_each(|l| l.to_bits().hash(&mut hasher));
    hasher.finish()
}

const ROLLBACK: &str = "rollback";
const CACHE: &str = "cached states";
const MEMORY: &str = "memory in a batch";

/// A rollback of wrong length.
pub(crate) fn short_rollback(words: String) -> Check {
    Check::fault(
        ROLLBACK,
        Finding {
            cause: "rollback",
            symptom: "a word is repeated now and then, and long outputs decay".to_owned(),
            words,
            remedy: "make the cache's length committed - 1 after every round; this is a fault of the engine, please report it"
                .to_owned(),
        },
    )
}

/// Three checks: of the rollback, of what rounds leave in the cache, and of the pages that they take.
pub(crate) fn judge(seen: &Seen) -> [Check; 3] {
    let rounds = format!("{} rounds of {} sequences", seen.rounds, seen.sequences);
    let mut checks = [
        Check::fine(
            ROLLBACK,
            format!("after {rounds}, {} of them cut short, the cache held committed - 1 positions", seen.rollbacks),
        ),
        Check::fine(
            CACHE,
            format!(
                "after each of {rounds} the next draft and the verified logits were those of plain decoding, bit for bit"
            ),
        ),
        Check::fine(
            MEMORY,
            format!(
                "{} pages with speculation, {} with plain decoding of the same tokens (up to {} within a round)",
                seen.pages.0, seen.pages.1, seen.peak
            ),
        ),
    ];
    let stale = |words: String| {
        Check::fault(
            CACHE,
            Finding {
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
        Some(Wrong::Length { line, round, committed, got }) => {
            checks[0] = short_rollback(format!(
                "after round {round} of the prompt of line {line}, with {committed} tokens committed, the cache holds {got} positions and not {}: the \
                 rollback is {} short",
                committed - 1,
                positions(got.abs_diff(committed - 1)),
            ));
            checks[1] = Check::open(CACHE, "the rollback is wrong");
            checks[2] = Check::open(MEMORY, "the rollback is wrong");
        }
        Some(Wrong::Verified { line, round, token }) => {
            checks[1] = stale(format!(
                "in round {round} of the prompt of line {line} verification gave other logits for token {token} than plain decoding"
            ));
        }
        Some(Wrong::Stale { line, round }) => {
            checks[1] = stale(format!(
                "round {round} of the prompt of line {line} drafted other logits from the cache that the rounds before had left than from the cache \
                 of plain decoding"
            ));
        }
        Some(Wrong::Pages { round, speculation, plain }) => {
            checks[2] = Check::fault(
                MEMORY,
                Finding {
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

/// What stands in their place where no round can be run.
pub(crate) fn unseen(why: &str) -> [Check; 3] {
    [ROLLBACK, CACHE, MEMORY].map(|name| Check::open(name, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn what_is_wrong_is_told_by_its_own_check() {
        let fault = |wrong| {
            let seen = Seen { sequences: 2, rounds: 3, rollbacks: 4, pages: (5, 5), peak: 6, wrong: Some(wrong) };
            let checks = judge(&seen);
            let faults: Vec<_> = checks.iter().filter(|c| c.verdict == Verdict::Fault).collect();
            assert_eq!(faults.len(), 1, "{checks:?}");
            (faults[0].finding.as_ref().expect("a fault has one").cause, faults[0].words.clone())
        };
        let (cause, words) = fault(Wrong::Length { line: 7, round: 3, committed: 40, got: 40 });
        assert_eq!(cause, "rollback");
        assert!(
            words.contains("line 7")
                && words.contains("holds 40 positions and not 39")
                && words.contains("one position short"),
            "{words}"
        );
        assert_eq!(fault(Wrong::Stale { line: 1, round: 2 }).0, "stale-kv");
        assert_eq!(fault(Wrong::Verified { line: 1, round: 2, token: 9 }).0, "stale-kv");
        assert_eq!(fault(Wrong::Pages { round: 2, speculation: 9, plain: 6 }).0, "own-cache");
        let sound = judge(&Seen { sequences: 1, rounds: 3, rollbacks: 2, pages: (2, 2), peak: 3, wrong: None });
        assert!(sound.iter().all(|c| c.verdict == Verdict::Fine), "{sound:?}");
    }
}
