//! Slots: indices into an executor's memory, for values kept by position.

/// Hands out slot numbers and takes them back. Numbers stay small: a slot is reused before a new
/// one is made.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    free: Vec<u32>,
    made: u32,
}

impl Slots {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        })
    }

    pub(crate) fn release(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.free.extend(slots);
    }

    /// Slots that are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.made as usize - self.free.len()
    }
}

/// The slots of a run of neighbouring positions.
#[derive(Debug, Default)]
pub(crate) struct SlotRun {
    from: usize,
    slots: Vec<u32>, // (position - from)
}

impl SlotRun {
    /// Takes the slot of `pos` and gives back those of later positions. A gap before `pos` gives
    /// the earlier ones back too.
    pub(crate) fn push(&mut self, pos: usize, pool: &mut Slots) -> u32 {
        let kept = if (self.from..=self.from + self.slots.len()).contains(&pos) { pos - self.from } else { 0 };
        pool.release(self.slots.drain(kept..));
        if self.slots.is_empty() {
            self.from = pos;
        }
        let slot = pool.take();
        self.slots.push(slot);
        slot
    }

    /// The slot of `pos`, if it has one.
    pub(crate) fn at(&self, pos: usize) -> Option<u32> {
        self.slots.get(pos.checked_sub(self.from)?).copied()
    }

    /// Gives back all slots but that of `pos`.
    pub(crate) fn keep_only(&mut self, pos: Option<usize>, pool: &mut Slots) {
        let kept = pos.and_then(|pos| self.at(pos));
        pool.release(self.slots.drain(..).filter(|slot| Some(*slot) != kept));
        if let (Some(pos), Some(slot)) = (pos, kept) {
            self.from = pos;
            self.slots.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_gives_back_what_a_new_position_replaces() {
        let (mut run, mut pool) = (SlotRun::default(), Slots::default());
        let slots: Vec<u32> = (5..8).map(|pos| run.push(pos, &mut pool)).collect();
        assert_eq!(slots, [0, 1, 2]);
        run.push(6, &mut pool);
        assert_eq!((run.at(5), run.at(6).is_some(), run.at(7), pool.taken()), (Some(0), true, None, 2));
        run.push(9, &mut pool);
        assert_eq!((run.at(5), run.at(9).is_some(), pool.taken()), (None, true, 1), "after a gap only it is left");
        run.push(10, &mut pool);
        run.keep_only(Some(9), &mut pool);
        assert_eq!((run.at(9).is_some(), run.at(10), pool.taken()), (true, None, 1));
        run.keep_only(Some(4), &mut pool);
        assert_eq!((run.at(9), pool.taken()), (None, 0));
    }
}
