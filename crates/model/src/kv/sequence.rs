//! One sequence's place in the KV cache, and what each of its uncommitted positions holds.
//!
//! Positions fall into three runs:
//!
//! - `0..len`: committed. K and V of every layer are the model's own.
//! - `len..full`: not committed yet, but computed through every layer (prefill, verification).
//! - `full..`: drafted. Only the layers of the drafting plan are written, and after its exact
//!   prefix they hold an approximation.
//!
//! A row may attend only to positions whose layers cover its own. That is checked here, before
//! anything is computed.

use crate::backend::BackendError;
use crate::kv::place::{AuxiliaryWork, FeatureSource, RowPlace};
use crate::kv::slots::{SlotRun, Slots};
use crate::plan::LayerPlan;
use crate::row::{Enter, Readout, Row, TokenId};

/// The hidden state of a drafted row after the exact prefix of its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeptState {
    pos: usize,
    token: TokenId,
    layers: usize, // that the state has passed
    slot: u32,
}

/// The row that was last computed at a position at or beyond `full`.
#[derive(Debug, Clone)]
struct DraftedRow {
    token: TokenId,
    plan: LayerPlan,
    auxiliary: bool, // whether it ran the auxiliary layer
}

/// Slots that sequences share: one pool for each kind of value.
#[derive(Debug, Default)]
pub(crate) struct SlotPools {
    pub(crate) states: Slots,
    pub(crate) features: Slots,
    pub(crate) drafted: Slots,
}

/// A live sequence.
#[derive(Debug, Default)]
pub(crate) struct SequenceIndex {
    pub(crate) pages: Vec<u32>, // (position / page_positions)
    pub(crate) len: usize,
    /// Whether rows of the full plan keep up the auxiliary layers.
    pub(crate) auxiliary: bool,
    full: usize,
    drafted: Vec<DraftedRow>, // (position - full)
    kept: Vec<KeptState>,     // ascending by position
    features: SlotRun,        // exact features: of the last committed position and of those computed after it
    guesses: SlotRun,         // the auxiliary layer's own states at drafted positions
}

impl SequenceIndex {
    pub(crate) fn new(pages: Vec<u32>, len: usize, auxiliary: bool) -> Self {
        SequenceIndex { pages, len, full: len, auxiliary, ..SequenceIndex::default() }
    }

    /// Positions that have been through all layers, committed or not.
    pub(crate) fn computed(&self) -> usize {
        self.full
    }

    /// Records that row `i` of `rows` is computed in this step, and decides where it starts and
    /// which slots it uses. `before` is the index of the sequence's previous row in this step.
    pub(crate) fn admit(
        &mut self,
        rows: &[Row],
        i: usize,
        before: Option<usize>,
        slots: &mut SlotPools,
    ) -> Result<RowPlace, BackendError> {
        let row = &rows[i];
        if before.is_some_and(|before| rows[before].pos >= row.pos) {
            return Err(bad(row, "rows of a sequence must ascend in a step"));
        }
        if row.pos < self.len {
            return Err(bad(row, "the position is committed already"));
        }
        if row.pos > self.full + self.drafted.len() {
            return Err(bad(row, "positions before it hold nothing"));
        }
        let (first_layer, enter) = match row.enter {
            Enter::Token => (0, None),
            Enter::Kept => {
                let kept = self.kept_for(row)?;
                (kept.layers, Some(kept.slot))
            }
        };
        let keep = match row.plan.is_full() {
            true => self.compute_in_full(row, slots)?,
            false => self.draft(row, slots)?,
        };
        let auxiliary = self.auxiliary_work(rows, i, before, slots)?;
        Ok(RowPlace { first_layer, enter, keep, auxiliary })
    }

    /// The kept state from which `row` enters.
    fn kept_for(&self, row: &Row) -> Result<KeptState, BackendError> {
        match self.kept.iter().find(|kept| kept.pos == row.pos) {
            None => Err(bad(row, "no hidden state was kept at this position")),
            Some(kept) if kept.token != row.token => {
                Err(bad(row, "the hidden state kept at this position is another token's"))
            }
            Some(_) if !row.plan.is_full() => {
                Err(bad(row, "only a row of the full plan may enter at a kept hidden state"))
            }
            Some(kept) => Ok(*kept),
        }
    }

    fn compute_in_full(&mut self, row: &Row, slots: &mut SlotPools) -> Result<Option<u32>, BackendError> {
        if row.pos > self.full {
            return Err(bad(row, "a row of the full plan must not follow positions that were only drafted"));
        }
        // A draft of the same token stands: its exact layers hold what this row would write there.
        // What was computed after another token does not.
        if row.pos == self.full && self.drafted.first().is_none_or(|d| d.token == row.token) {
            self.drafted.drain(..self.drafted.len().min(1));
        } else {
            self.drafted.clear();
            self.forget_kept(row.pos, slots);
        }
        self.full = row.pos + 1;
        Ok(None)
    }

    fn draft(&mut self, row: &Row, slots: &mut SlotPools) -> Result<Option<u32>, BackendError> {
        if row.pos < self.full {
            return Err(bad(row, "the position is computed in full already"));
        }
        let drafted_before = row.pos - self.full;
        let auxiliary = row.readout == Readout::ExitHead;
        let covers = |before: &DraftedRow| {
            let mut layers = 0..row.plan.n_layers();
            layers.all(|l| before.plan.runs(l) || !row.plan.runs(l)) && (before.auxiliary || !auxiliary)
        };
        if !self.drafted[..drafted_before].iter().all(covers) {
            return Err(bad(row, "a position before it lacks layers that the row runs"));
        }
        self.drafted.truncate(drafted_before);
        self.drafted.push(DraftedRow { token: row.token, plan: row.plan.clone(), auxiliary });
        self.forget_kept(row.pos, slots);
        Ok(row.keep.then(|| {
            let slot = slots.states.take();
            self.kept.push(KeptState { pos: row.pos, token: row.token, layers: row.plan.exact_prefix(), slot });
            slot
        }))
    }

    fn auxiliary_work(
        &mut self,
        rows: &[Row],
        i: usize,
        before: Option<usize>,
        slots: &mut SlotPools,
    ) -> Result<Option<AuxiliaryWork>, BackendError> {
        let row = &rows[i];
        let drafts = row.readout == Readout::ExitHead;
        if drafts && !self.auxiliary {
            return Err(bad(row, "its sequence does without the auxiliary layers"));
        }
        let keeps_up = self.auxiliary && row.plan.is_full();
        if !drafts && !keeps_up {
            return Ok(None);
        }
        // The sequence's row at the position before, if it is in this step.
        let neighbour = before.filter(|before| rows[*before].pos + 1 == row.pos);
        let exact = || row.pos.checked_sub(1).and_then(|pos| self.features.at(pos));
        let guess = || row.pos.checked_sub(1).and_then(|pos| self.guesses.at(pos));
        if drafts {
            if neighbour.is_some_and(|before| rows[before].readout == Readout::ExitHead) {
                return Err(bad(row, "it reads the state of a row before it that drafts in the same step"));
            }
            let source = match row.pos > self.full {
                true => guess().map(FeatureSource::Drafted),
                false => exact().map(FeatureSource::Exact),
            };
            let keep = self.guesses.push(row.pos, &mut slots.drafted);
            return Ok(Some(AuxiliaryWork::Draft { source: source.unwrap_or(FeatureSource::Missing), keep }));
        }
        let source = match neighbour.filter(|before| rows[*before].plan.is_full()) {
            Some(before) => FeatureSource::Row(before),
            None => exact().map_or(FeatureSource::Missing, FeatureSource::Exact),
        };
        let keep = self.features.push(row.pos, &mut slots.features);
        Ok(Some(AuxiliaryWork::KeepUp { source, keep }))
    }

    fn forget_kept(&mut self, from: usize, slots: &mut SlotPools) {
        slots.states.release(self.kept.extract_if(.., |kept| kept.pos >= from).map(|kept| kept.slot));
    }

    /// Forgets what is not committed.
    pub(crate) fn forget_uncommitted(&mut self, slots: &mut SlotPools) {
        self.full = self.len;
        self.drafted.clear();
        self.forget_kept(0, slots);
        self.features.keep_only(self.len.checked_sub(1), &mut slots.features);
        self.guesses.keep_only(None, &mut slots.drafted);
    }

    /// From now on no row keeps up the auxiliary layers.
    pub(crate) fn drop_auxiliary(&mut self, slots: &mut SlotPools) {
        self.auxiliary = false;
        self.features.keep_only(None, &mut slots.features);
        self.guesses.keep_only(None, &mut slots.drafted);
    }

    /// Makes the length exactly `len` and forgets everything beyond it but the pages, which the
    /// caller frees. False, and nothing changes, if positions before `len` are not computed in
    /// every layer.
    pub(crate) fn set_len(&mut self, len: usize, slots: &mut SlotPools) -> bool {
        if len > self.full {
            return false;
        }
        self.len = len;
        self.forget_uncommitted(slots);
        true
    }

    /// Forgets everything but the memory, and gives back the slots. The caller frees the pages.
    pub(crate) fn clear(&mut self, slots: &mut SlotPools) {
        self.len = 0;
        self.forget_uncommitted(slots);
    }
}

fn bad(row: &Row, why: &'static str) -> BackendError {
    BackendError::BadRow { seq: row.seq, pos: row.pos, why }
}
