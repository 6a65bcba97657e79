//! Sequences over pages: admission, forks, roll-back, and the making of validated steps.

use crate::backend::BackendError;
use crate::kv::pages::PageTable;
use crate::kv::place::{PageCopy, RowPlace};
use crate::kv::sequence::{SequenceIndex, SlotPools};
use crate::kv::shape::DeviceShape;
use crate::kv::step::ValidatedStep;
use crate::row::{Readout, Row, SeqId};

/// All bookkeeping of a device's KV cache.
#[derive(Debug)]
pub(crate) struct KvIndex {
    shape: DeviceShape,
    pages: PageTable,
    sequences: Vec<Option<SequenceIndex>>, // (SeqId)
    unused: Vec<SequenceIndex>,            // freed, kept for their memory
    slots: SlotPools,
    places: Vec<RowPlace>, // (row), of one step
    copies: Vec<PageCopy>, // of one step
    short_rollback: bool,
}

impl KvIndex {
    /// An empty cache of a device.
    pub(crate) fn new(shape: DeviceShape) -> Self {
        KvIndex {
            pages: PageTable::new(shape.pages),
            shape,
            sequences: Vec::new(),
            unused: Vec::new(),
            slots: SlotPools::default(),
            places: Vec::new(),
            copies: Vec::new(),
            short_rollback: false,
        }
    }

    /// From now on a roll-back leaves one position too many: a fault for diagnoses to find.
    pub(crate) fn plant_short_rollback(&mut self) {
        self.short_rollback = true;
    }

    pub(crate) fn shape(&self) -> &DeviceShape {
        &self.shape
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.pages.free_pages()
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> &SlotPools {
        &self.slots
    }

    /// A new, empty sequence, which keeps up the auxiliary layers that there are.
    pub(crate) fn create(&mut self) -> SeqId {
        let mut sequence = self.unused.pop().unwrap_or_default();
        sequence.auxiliary = self.shape.has_auxiliary();
        self.insert(sequence)
    }

    fn insert(&mut self, sequence: SequenceIndex) -> SeqId {
        let index = match self.sequences.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.sequences.push(None);
                self.sequences.len() - 1
            }
        };
        self.sequences[index] = Some(sequence);
        SeqId(u32::try_from(index).expect("fewer sequences than page numbers"))
    }

    /// A sequence that shares the first `len` positions of `seq`, and the page that must be copied
    /// for it now. It keeps up the auxiliary layers if `seq` does.
    pub(crate) fn fork(&mut self, seq: SeqId, len: usize) -> Result<(SeqId, Option<PageCopy>), BackendError> {
        let page_positions = self.shape.page_positions;
        let source = self.sequence(seq)?;
        if len > source.len {
            return Err(BackendError::BadRow { seq, pos: len, why: "a fork cannot be longer than what is committed" });
        }
        let auxiliary = source.auxiliary;
        let mut pages = source.pages[..len.div_ceil(page_positions)].to_vec();
        let mut copy = None;
        let whole = len / page_positions;
        if let Some(last) = pages.get_mut(whole) {
            let own = self.pages.take()?;
            copy = Some(PageCopy { from: *last, to: own });
            *last = own;
        }
        for page in &pages[..whole] {
            self.pages.share(*page);
        }
        Ok((self.insert(SequenceIndex::new(pages, len, auxiliary)), copy))
    }

    /// Frees a sequence with its pages and slots.
    pub(crate) fn free(&mut self, seq: SeqId) {
        let Some(mut sequence) = self.sequences.get_mut(seq.0 as usize).and_then(Option::take) else { return };
        for page in sequence.pages.drain(..) {
            self.pages.release(page);
        }
        sequence.clear(&mut self.slots);
        self.unused.push(sequence);
    }

    pub(crate) fn sequence(&self, seq: SeqId) -> Result<&SequenceIndex, BackendError> {
        self.sequences.get(seq.0 as usize).and_then(Option::as_ref).ok_or(BackendError::UnknownSequence(seq))
    }

    /// From now on no row of `seq` keeps up the auxiliary layers.
    pub(crate) fn drop_auxiliary(&mut self, seq: SeqId) -> Result<(), BackendError> {
        live(&mut self.sequences, seq)?.drop_auxiliary(&mut self.slots);
        Ok(())
    }

    /// Commits or rolls back to exactly `len` positions, and frees the pages wholly beyond.
    pub(crate) fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        let sequence = live(&mut self.sequences, seq)?;
        let len = len + usize::from(self.short_rollback && len < sequence.computed());
        if !sequence.set_len(len, &mut self.slots) {
            let why = "positions before it are not computed in every layer";
            return Err(BackendError::BadRow { seq, pos: len, why });
        }
        let needed = len.div_ceil(self.shape.page_positions).min(sequence.pages.len());
        for page in sequence.pages.drain(needed..) {
            self.pages.release(page);
        }
        Ok(())
    }

    /// Checks the rows of a step, takes their pages and slots, and records that they are computed.
    ///
    /// # Errors
    /// The first fault found. No page was taken and no length changed; if a row itself is at fault,
    /// what the step's sequences had not committed is forgotten.
    pub(crate) fn admit<'a>(&'a mut self, rows: &'a [Row]) -> Result<ValidatedStep<'a>, BackendError> {
        for row in rows {
            self.check(row)?;
        }
        self.pages.check(self.pages_wanted(rows)?)?;
        self.places.clear();
        for (i, row) in rows.iter().enumerate() {
            // Rows of one sequence usually stand together, so the search from the back ends at
            // once.
            let before = rows[..i].iter().rposition(|r| r.seq == row.seq);
            let sequence = live(&mut self.sequences, row.seq)?;
            match sequence.admit(rows, i, before, &mut self.slots) {
                Ok(place) => self.places.push(place),
                Err(error) => {
                    self.forget_uncommitted(rows);
                    return Err(error);
                }
            }
        }
        self.copies.clear();
        for row in rows {
            self.own_page(row)?;
        }
        let KvIndex { places, sequences, copies, .. } = self;
        Ok(ValidatedStep { rows, places, sequences, copies })
    }

    /// Forgets what the sequences of these rows had not committed: their step failed.
    pub(crate) fn forget_uncommitted(&mut self, rows: &[Row]) {
        for row in rows {
            if let Ok(sequence) = live(&mut self.sequences, row.seq) {
                sequence.forget_uncommitted(&mut self.slots);
            }
        }
    }

    /// Checks what does not depend on the sequence's state.
    fn check(&self, row: &Row) -> Result<(), BackendError> {
        let shape = &self.shape;
        self.sequence(row.seq)?;
        if row.pos >= shape.context {
            return Err(BackendError::BeyondContext { pos: row.pos, context: shape.context });
        }
        if row.token as usize >= shape.vocab {
            return Err(BackendError::UnknownToken { token: row.token, vocab: shape.vocab });
        }
        let bad = |why| Err(BackendError::BadRow { seq: row.seq, pos: row.pos, why });
        if row.plan.n_layers() != shape.n_layers {
            return bad("its plan is for another number of layers");
        }
        match (row.readout, &shape.exit_head) {
            (Readout::ExitHead, None) => bad("there is no exit head"),
            (Readout::ExitHead, Some(info)) if row.plan != info.plan => bad("its plan is not that of the exit head"),
            (Readout::DraftVocab, _) if shape.draft_vocab.is_none() => bad("there is no draft vocabulary"),
            (Readout::Nothing | Readout::Head | Readout::DraftVocab, _) if row.plan.cost_layers() == 0 => {
                bad("its plan runs no layer")
            }
            _ => Ok(()),
        }
    }

    /// Pages that `rows` need beyond those that their sequences own alone. A page is counted when
    /// its first row is met, whatever the order of the rows.
    fn pages_wanted(&self, rows: &[Row]) -> Result<usize, BackendError> {
        let page_positions = self.shape.page_positions;
        let mut wanted = 0;
        for (i, row) in rows.iter().enumerate() {
            let page = row.pos / page_positions;
            let met = |r: &Row| r.seq == row.seq && r.pos / page_positions == page;
            if rows[..i].iter().rev().any(met) {
                continue;
            }
            match self.sequence(row.seq)?.pages.get(page) {
                Some(owned) if !self.pages.is_shared(*owned) => {}
                _ => wanted += 1,
            }
        }
        Ok(wanted)
    }

    /// Takes the page of `row`'s position. A shared page becomes a copy first.
    fn own_page(&mut self, row: &Row) -> Result<(), BackendError> {
        let page = row.pos / self.shape.page_positions;
        let sequence = live(&mut self.sequences, row.seq)?;
        match sequence.pages.get_mut(page) {
            None => sequence.pages.push(self.pages.take()?),
            Some(shared) if self.pages.is_shared(*shared) => {
                let own = self.pages.take()?;
                self.copies.push(PageCopy { from: *shared, to: own });
                self.pages.release(*shared);
                *shared = own;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

fn live(sequences: &mut [Option<SequenceIndex>], seq: SeqId) -> Result<&mut SequenceIndex, BackendError> {
    sequences.get_mut(seq.0 as usize).and_then(Option::as_mut).ok_or(BackendError::UnknownSequence(seq))
}
