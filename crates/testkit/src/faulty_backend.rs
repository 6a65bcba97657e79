//! A [`Backend`] that fails when a test says so, around any other.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use selfspec_model::{
    Backend, BackendError, ChooseToken, ExitHeadInfo, LogitsError, Profiler, Readout, Row, SeqId, StepOutput,
    StepReadouts, TokenChoice, TokenId,
};

/// The faults of a [`FaultyBackend`], and what it has seen; shared with the test.
#[derive(Debug, Default)]
pub struct Faults {
    /// The step that is this many from now panics; 0: none.
    pub panic_in: AtomicUsize,
    /// The cache is full in the step that is this many from now; 0: never.
    pub full_in: AtomicUsize,
    /// The next sequence that is freed keeps its pages.
    pub lose_a_page: AtomicBool,
    /// The step of this number, from 1, sets `hold`; 0: none.
    pub hold_at: AtomicUsize,
    /// Steps wait while this is set.
    pub hold: AtomicBool,
    /// Steps that still run while `hold` is set.
    pub allowed: AtomicUsize,
    /// A row of this token is refused.
    pub refused_token: Option<TokenId>,
    /// Sequences that a row of this token belongs to get logits that are not a number.
    pub nan_token: Option<TokenId>,
    /// Rows of the full plan whose middle logit is replaced: sequence, position, value.
    pub broken_logits: Mutex<Vec<(SeqId, usize, f32)>>,
    /// Tokens of the rows at position 0, in the order of the steps.
    pub first_tokens: Mutex<Vec<TokenId>>,
    /// Steps begun.
    pub steps: AtomicUsize,
    /// Most rows of one step.
    pub most_rows: AtomicUsize,
    /// Most sequences in one step.
    pub most_seqs: AtomicUsize,
    /// Whether the backend was dropped.
    pub dropped: AtomicBool,
}

impl Faults {
    /// Sets or ends the hold on steps.
    pub fn hold(&self, hold: bool) {
        self.hold.store(hold, Ordering::SeqCst);
    }

    /// Lets this many more steps run; later ones wait.
    pub fn hold_after(&self, steps: usize) {
        self.allowed.store(steps, Ordering::SeqCst);
        self.hold(true);
    }

    /// Whether a step may run in spite of `hold`.
    fn take_allowed(&self) -> bool {
        let one_less = |allowed: usize| allowed.checked_sub(1);
        self.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    /// Waits until a step has begun since there were `before`.
    pub fn wait_for_step(&self, before: usize) {
        while self.steps.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }

    /// From now on the full row of `seq` at `pos` has a logit of `value` in its middle.
    ///
    /// # Panics
    /// Never: the lock is not held across a panic.
    pub fn break_logits(&self, seq: SeqId, pos: usize, value: f32) {
        self.broken_logits.lock().unwrap_or_else(PoisonError::into_inner).push((seq, pos, value));
    }
}

/// Ends the hold on steps when it is dropped, so that a failing test does not wait for ever.
#[derive(Debug)]
pub struct ReleaseOnDrop<'a>(pub &'a Faults);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

/// A backend that fails on purpose.
#[derive(Debug)]
pub struct FaultyBackend<B> {
    /// The backend that does the work.
    pub inner: B,
    faults: Arc<Faults>,
    nan: HashSet<SeqId>,
}

impl<B> FaultyBackend<B> {
    /// `inner` with these faults.
    pub fn new(inner: B, faults: &Arc<Faults>) -> Self {
        FaultyBackend { inner, faults: faults.clone(), nan: HashSet::new() }
    }
}

impl<B> Drop for FaultyBackend<B> {
    fn drop(&mut self) {
        self.faults.dropped.store(true, Ordering::SeqCst);
    }
}

/// Counts down to a fault. Whether it is due.
fn is_due(counter: &AtomicUsize) -> bool {
    let left = counter.load(Ordering::SeqCst);
    counter.store(left.saturating_sub(1), Ordering::SeqCst);
    left == 1
}

impl<B: Backend> FaultyBackend<B> {
    /// What happens before the step itself.
    fn before_step(&mut self, rows: &[Row]) -> Result<(), BackendError> {
        let faults = &*self.faults;
        if faults.steps.fetch_add(1, Ordering::SeqCst) + 1 == faults.hold_at.load(Ordering::SeqCst) {
            faults.hold(true);
        }
        let allowed = faults.take_allowed();
        while !allowed && faults.hold.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let first = rows.iter().filter(|r| r.pos == 0).map(|r| r.token);
        faults.first_tokens.lock().unwrap_or_else(PoisonError::into_inner).extend(first);
        faults.most_rows.fetch_max(rows.len(), Ordering::SeqCst);
        let seqs: HashSet<SeqId> = rows.iter().map(|r| r.seq).collect();
        faults.most_seqs.fetch_max(seqs.len(), Ordering::SeqCst);
        assert!(!is_due(&faults.panic_in), "a worker fell over");
        let refused = rows.iter().find(|r| Some(r.token) == faults.refused_token);
        if is_due(&faults.full_in) || refused.is_some() {
            // What was drafted is forgotten, as the CPU's backend does.
            for seq in seqs {
                let len = self.inner.kv_len(seq)?;
                self.inner.set_len(seq, len)?;
            }
            let full = BackendError::KvFull { wanted: 1, free: 0 };
            let why = "refused on purpose";
            return Err(refused.map_or(full, |row| BackendError::BadRow { seq: row.seq, pos: row.pos, why }));
        }
        let nan_token = faults.nan_token;
        self.nan.extend(rows.iter().filter(|r| nan_token == Some(r.token)).map(|r| r.seq));
        Ok(())
    }
}

/// Chooses from logits after the faults have been put into them.
struct SpoiledChoice<'a> {
    choose: Option<&'a dyn ChooseToken>,
    rows: &'a [Row],
    faults: &'a Faults,
    nan: &'a HashSet<SeqId>,
}

impl SpoiledChoice<'_> {
    /// The logits of a row with the faults in them.
    fn spoil(&self, row: usize, logits: &[f32]) -> Vec<f32> {
        let (row, mut logits) = (&self.rows[row], logits.to_vec());
        // Only prompts hold the tokens that mean a fault.
        for token in self.faults.refused_token.into_iter().chain(self.faults.nan_token) {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = -1e9;
            }
        }
        if self.nan.contains(&row.seq) {
            logits[3] = f32::NAN;
        }
        let broken = self.faults.broken_logits.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, _, value) in broken.iter().filter(|(s, p, _)| row.plan.is_full() && (*s, *p) == (row.seq, row.pos)) {
            let middle = logits.len() / 2;
            logits[middle] = *value;
        }
        logits
    }
}

impl ChooseToken for SpoiledChoice<'_> {
    fn chooses(&self, row: usize) -> bool {
        self.choose.is_some_and(|choose| choose.chooses(row))
    }

    fn choose(&self, row: usize, logits: &[f32]) -> Result<TokenChoice, LogitsError> {
        let choose = self.choose.expect("only rows that it chooses are asked for");
        choose.choose(row, &self.spoil(row, logits))
    }
}

impl<B: Backend> Backend for FaultyBackend<B> {
    fn n_layers(&self) -> usize {
        self.inner.n_layers()
    }
    fn vocab(&self) -> usize {
        self.inner.vocab()
    }
    fn context(&self) -> usize {
        self.inner.context()
    }
    fn page_positions(&self) -> usize {
        self.inner.page_positions()
    }
    fn free_pages(&self) -> usize {
        self.inner.free_pages()
    }
    fn total_pages(&self) -> usize {
        self.inner.total_pages()
    }
    fn create(&mut self) -> SeqId {
        self.inner.create()
    }
    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError> {
        self.inner.fork(seq, len)
    }
    fn free(&mut self, seq: SeqId) {
        self.nan.remove(&seq);
        if !self.faults.lose_a_page.swap(false, Ordering::SeqCst) {
            self.inner.free(seq);
        }
    }
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        self.inner.kv_len(seq)
    }
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        self.inner.set_len(seq, len)
    }
    fn has_auxiliary(&self, seq: SeqId) -> Result<bool, BackendError> {
        self.inner.has_auxiliary(seq)
    }
    fn drop_auxiliary(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.inner.drop_auxiliary(seq)
    }
    fn step_with(
        &mut self,
        rows: &[Row],
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError> {
        self.before_step(rows)?;
        let spoiled = SpoiledChoice { choose: readouts.choose, rows, faults: &self.faults, nan: &self.nan };
        let choose = readouts.choose.is_some().then_some(&spoiled as &dyn ChooseToken);
        let mut sound = StepOutput::default();
        self.inner.step_with(rows, &StepReadouts { choose, ..*readouts }, &mut sound)?;
        out.clear();
        out.layer_rows = sound.layer_rows;
        for (i, (index, _)) in rows.iter().enumerate().filter(|(_, r)| r.readout != Readout::Nothing).enumerate() {
            match sound.choice(i) {
                Some(choice) => out.push_choice(index, choice.clone()),
                None => out.push(index, &spoiled.spoil(index, sound.logits(i)), None),
            }
        }
        Ok(())
    }
    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        self.inner.draft_vocab()
    }
    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        self.inner.exit_head()
    }
    fn profiler(&mut self) -> Option<&mut Profiler> {
        self.inner.profiler()
    }
}
