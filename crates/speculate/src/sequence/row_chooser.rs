//! Choosing the tokens of a sequence's rows where their logits are, on any thread.
//!
//! The drafts of a verification are known before the step, and so is the history of each of its
//! rows: row i sees drafts 1 to i. So all rows of all sequences can be chosen at once. Tokens of
//! rows after the first rejected draft are not used; choosing them occupies only idle threads.
//!
//! Sequences under a constraint take logits instead: the mask of a row exists only when the tokens
//! before it are committed.

use std::sync::{Mutex, PoisonError};

use selfspec_model::{ChooseToken, LogitsError, Readout, Row, SeqId, TokenChoice, TokenId};

use crate::sample::noise::RoundPosition;
use crate::sample::sampler::{DraftToken, LogitsRow};
use crate::sample::sequence_sampler::RowSampler;
use crate::sequence::state::{RowsInStep, Sequence};

/// What the rows of a sequence are for.
#[derive(Debug, Clone, Copy)]
enum RowPurpose<'a> {
    /// Row i verifies draft i, or chooses the token after all drafts.
    Verify(&'a [DraftToken]),
    /// Row i proposes the draft at its place. `vocab`: the tokens of its logits; `None`: all.
    Draft { vocab: Option<&'a [TokenId]>, with_confidence: bool },
}

/// Chooses the tokens of one sequence's rows.
#[derive(Debug)]
pub struct RowChooser<'a> {
    seq: SeqId,
    sampler: RowSampler<'a>,
    purpose: RowPurpose<'a>,
    start: RoundPosition, // of the first row's token
    proposed: &'a Mutex<Vec<DraftToken>>,
}

impl Sequence {
    /// Chooses the tokens of the rows last asked for. `None` if the sequence takes their logits, or
    /// has no rows in the step.
    pub fn row_chooser(&self) -> Option<RowChooser<'_>> {
        let sampler = self.sampler.row_sampler()?;
        let committed = self.tokens.len();
        let (purpose, start) = match (self.in_step, &self.round) {
            (RowsInStep::None, _) => return None,
            (RowsInStep::Prefill(_), _) => (RowPurpose::Verify(&[]), RoundPosition { pos: committed, row: 0 }),
            (RowsInStep::Draft, Some(round)) => {
                let (vocab, with_confidence) = self.draft_rows(round)?;
                (RowPurpose::Draft { vocab, with_confidence }, round.next_position(&self.tokens))
            }
            (RowsInStep::Verify, Some(round)) => {
                (RowPurpose::Verify(&round.drafts), RoundPosition { pos: committed, row: 0 })
            }
            (RowsInStep::Draft | RowsInStep::Verify, None) => return None,
        };
        Some(RowChooser { seq: self.seq, sampler, purpose, start, proposed: &self.proposed })
    }
}

impl ChooseToken for RowChooser<'_> {
    fn chooses(&self, _: usize) -> bool {
        true
    }

    fn choose(&self, row: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        let at = RoundPosition { pos: self.start.pos + row, row: self.start.row + row };
        match self.purpose {
            RowPurpose::Verify(drafts) => {
                let before = &self.sampler.drafts()[..row.min(self.sampler.drafts().len())];
                self.sampler.verify(LogitsRow::all(logits), before, at, drafts.get(row))
            }
            RowPurpose::Draft { vocab, with_confidence } => {
                let mut proposed = self.proposed.lock().unwrap_or_else(PoisonError::into_inner);
                let new = proposed.iter().map(|draft| draft.token);
                let before: Vec<TokenId> = self.sampler.drafts().iter().copied().chain(new).collect();
                let row = LogitsRow { tokens: vocab, ..LogitsRow::all(logits) };
                let draft = self.sampler.propose(row, &before, at, with_confidence)?;
                let (token, confidence) = (draft.token, draft.confidence);
                proposed.push(draft);
                Ok(TokenChoice { token, accepted: false, confidence, logprob: None })
            }
        }
    }
}

/// Chooses the tokens of a step's rows, each by its sequence.
#[derive(Debug, Default)]
pub struct StepChooser<'a> {
    sequences: Vec<RowChooser<'a>>,
    rows: Vec<Option<(usize, usize)>>, // (row of the step): its sequence's chooser, and its place there
}

impl<'a> StepChooser<'a> {
    /// A chooser for a step of these rows, which belong to these sequences.
    pub fn new(rows: &[Row], sequences: impl Iterator<Item = &'a Sequence>) -> Self {
        let sequences: Vec<RowChooser<'_>> = sequences.filter_map(Sequence::row_chooser).collect();
        let mut chosen = vec![0; sequences.len()];
        let mut place = |row: &Row| {
            let index = sequences.iter().position(|chooser| chooser.seq == row.seq)?;
            if row.readout == Readout::Nothing {
                return None;
            }
            chosen[index] += 1;
            Some((index, chosen[index] - 1))
        };
        let rows = rows.iter().map(&mut place).collect();
        StepChooser { sequences, rows }
    }
}

impl ChooseToken for StepChooser<'_> {
    fn chooses(&self, row: usize) -> bool {
        self.rows.get(row).is_some_and(Option::is_some)
    }

    fn choose(&self, row: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        let (sequence, place) = self.rows[row].expect("only rows that it chooses are asked for");
        self.sequences[sequence].choose(place, logits)
    }
}
