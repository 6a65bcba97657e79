//! One sequence's place in the KV cache, and what each of its uncommitted positions holds.
//!
//! Positions fall into three runs:
//!
//! - `0..len`: committed. K and V of every layer are the model's own.
//! - `len..full`: not committed yet, but computed through every layer (prefill, verification).
//! - `full..`: drafted. Only the layers of the drafting plan are written, and after its exact prefix they hold an approximation.
//!
//! A row may attend only to positions whose layers cover its own; that is checked here, before anything is computed.

use crate::backend::{BackendError, Enter, Row, SeqId, TokenId};
use crate::plan::LayerPlan;

/// The hidden state of a drafted row after the exact prefix of its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) token: TokenId,
    /// Layers that the state has passed.
    pub(crate) layers: usize,
    /// Index of its row in [`Sequence::states`].
    pub(crate) slot: usize,
}

/// Hidden states of a run of positions.
#[derive(Debug, Default)]
pub(crate) struct States {
    from: usize,
    width: usize,
    values: Vec<f32>, // (position - from, width)
}

impl States {
    /// Writes the state of `pos` and forgets those of later positions; a gap before it forgets the earlier ones too.
    pub(crate) fn push(&mut self, pos: usize, state: &[f32]) {
        let end = self.from + self.values.len().checked_div(self.width).unwrap_or(0);
        if (self.from..=end).contains(&pos) {
            self.values.truncate((pos - self.from) * self.width);
        } else {
            self.values.clear();
        }
        if self.values.is_empty() {
            (self.from, self.width) = (pos, state.len());
        }
        self.values.extend_from_slice(state);
    }

    /// The state of `pos`, if it is there.
    pub(crate) fn at(&self, pos: usize) -> Option<&[f32]> {
        let at = pos.checked_sub(self.from)? * self.width;
        self.values.get(at..at + self.width).filter(|state| !state.is_empty())
    }

    /// Forgets all but the state of `pos`.
    fn keep_only(&mut self, pos: Option<usize>) {
        match pos.filter(|pos| self.at(*pos).is_some()) {
            Some(pos) => {
                let at = (pos - self.from) * self.width;
                self.values.copy_within(at..at + self.width, 0);
                self.values.truncate(self.width);
                self.from = pos;
            }
            None => self.values.clear(),
        }
    }
}

/// What a position at or beyond `full` holds.
#[derive(Debug, Clone)]
struct Drafted {
    token: TokenId,
    plan: LayerPlan,
}

/// A live sequence.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) pages: Vec<u32>, // (position / page_positions)
    pub(crate) len: usize,
    full: usize,
    drafted: Vec<Drafted>,       // (position - full)
    kept: Vec<(usize, Kept)>,    // (position, state), ascending: the i-th is in slot i
    pub(crate) states: Vec<f32>, // (slot, dim)
    pub(crate) taps: Vec<f32>,   // (slot, tap, dim): what the exit head reads, as far as the row has come that kept it
    /// The exit head's features at the last committed position and at those computed in full after it.
    pub(crate) features: States,
    /// The exit head's own states at drafted positions, which stand for the features there.
    pub(crate) guesses: States,
}

impl Sequence {
    pub(crate) fn forked(pages: Vec<u32>, len: usize) -> Self {
        Sequence { pages, len, full: len, ..Sequence::default() }
    }

    /// Positions that have been through all layers, committed or not.
    pub(crate) fn computed(&self) -> usize {
        self.full
    }

    pub(crate) fn kept(&self, pos: usize) -> Option<Kept> {
        self.kept.iter().find(|(p, _)| *p == pos).map(|(_, kept)| *kept)
    }

    /// Records that `row` is computed in this step, and where it starts, or says why it cannot be. Rows of one sequence come
    /// in ascending positions.
    pub(crate) fn admit(&mut self, row: &Row) -> Result<usize, BackendError> {
        let bad = |why| Err(BackendError::BadRow { seq: row.seq, pos: row.pos, why });
        if row.pos < self.len {
            return bad("the position is committed already");
        }
        if row.pos > self.full + self.drafted.len() {
            return bad("positions before it hold nothing");
        }
        let first_layer = match row.enter {
            Enter::Token => 0,
            Enter::Kept => match self.kept(row.pos) {
                None => return bad("no hidden state was kept at this position"),
                Some(kept) if kept.token != row.token => {
                    return bad("the hidden state kept at this position is another token's");
                }
                Some(_) if !row.plan.is_full() => {
                    return bad("only a row of the full plan may enter at a kept hidden state");
                }
                Some(kept) => kept.layers,
            },
        };
        let drafted_before = row.pos.saturating_sub(self.full);
        if row.plan.is_full() {
            if drafted_before > 0 {
                return bad("a row of the full plan must not follow positions that were only drafted");
            }
            // What was drafted for the same token stands: its exact layers hold what this row finds in them. What was computed
            // after another token does not.
            let same = row.pos == self.full && self.drafted.first().is_none_or(|d| d.token == row.token);
            if same {
                self.drafted.drain(..self.drafted.len().min(1));
            } else {
                self.drafted.clear();
                self.kept.retain(|(p, _)| *p < row.pos);
            }
            self.full = row.pos + 1;
            return Ok(first_layer);
        }
        if row.pos < self.full {
            return bad("the position is computed in full already");
        }
        let covers = |plan: &LayerPlan| (0..plan.n_layers()).all(|l| plan.runs(l) || !row.plan.runs(l));
        if !self.drafted[..drafted_before].iter().all(|d| covers(&d.plan)) {
            return bad("a position before it lacks layers that the row runs");
        }
        self.drafted.truncate(drafted_before);
        self.drafted.push(Drafted { token: row.token, plan: row.plan.clone() });
        self.kept.retain(|(p, _)| *p < row.pos);
        if row.keep {
            let kept = Kept { token: row.token, layers: row.plan.exact_prefix(), slot: self.kept.len() };
            self.kept.push((row.pos, kept));
        }
        Ok(first_layer)
    }

    /// Forgets everything but the memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.features.values.clear();
        self.guesses.values.clear();
        self.forget_uncommitted();
    }

    /// Forgets what is not committed.
    pub(crate) fn forget_uncommitted(&mut self) {
        self.full = self.len;
        self.drafted.clear();
        self.kept.clear();
    }

    /// Makes the length exactly `len` and forgets everything beyond it but the pages, which the caller frees.
    pub(crate) fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        if len > self.full {
            return Err(BackendError::BadRow {
                seq,
                pos: len,
                why: "positions before it are not computed in every layer",
            });
        }
        self.len = len;
        self.features.keep_only(len.checked_sub(1));
        self.guesses.keep_only(None);
        self.forget_uncommitted();
        Ok(())
    }
}
