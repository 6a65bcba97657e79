//! A backend without a model, whose steps wait or panic when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use selfspec_engine::{Engine, EngineOptions};
use selfspec_model::{Backend, BackendError, Row, SeqId, StepOutput};
use selfspec_testkit::fake_target::{FakeOptions, FakeTarget};

/// When steps wait or panic; shared with the test.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Steps wait while this is set.
    hold: AtomicBool,
    /// Steps that still run while `hold` is set.
    allowed: AtomicUsize,
    /// The step after this many from now panics; 0: none.
    pub(crate) panic_in: AtomicUsize,
    /// Steps that have begun.
    pub(crate) steps: AtomicUsize,
}

impl Plan {
    /// Holds all further steps, or releases them.
    pub(crate) fn hold(&self, hold: bool) {
        self.hold.store(hold, Ordering::SeqCst);
    }

    /// Lets this many more steps run; later ones wait.
    pub(crate) fn hold_after(&self, steps: usize) {
        self.allowed.store(steps, Ordering::SeqCst);
        self.hold(true);
    }

    /// Waits until the number of steps is no longer `before`.
    pub(crate) fn wait_for_step(&self, before: usize) {
        while self.steps.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}

impl Plan {
    /// Whether a step may run in spite of `hold`.
    fn take_allowed(&self) -> bool {
        let one_less = |allowed: usize| allowed.checked_sub(1);
        self.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

/// Releases held steps when it is dropped, so that a failing test does not hang.
pub(crate) struct Release<'a>(pub(crate) &'a Plan);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

struct Planted {
    inner: FakeTarget,
    plan: Arc<Plan>,
}

/// An engine on such a backend, without a tokenizer: prompts are token ids below 40.
pub(crate) fn engine(max_batch: usize) -> (Arc<Engine>, Arc<Plan>) {
    let plan = Arc::new(Plan::default());
    let inner = FakeTarget::new(FakeOptions { context: 2048, pages: 4096, ..FakeOptions::default() });
    let backend = Box::new(Planted { inner, plan: plan.clone() });
    let options = EngineOptions { max_batch, prefix_cache: true, ..EngineOptions::default() };
    (Arc::new(Engine::with_backend(backend, None, None, &options).expect("a thread")), plan)
}

impl Backend for Planted {
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
        self.inner.free(seq);
    }
    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        self.inner.kv_len(seq)
    }
    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        self.inner.set_len(seq, len)
    }
    fn step(&mut self, rows: &[Row], out: &mut StepOutput) -> Result<(), BackendError> {
        self.plan.steps.fetch_add(1, Ordering::SeqCst);
        if !self.plan.take_allowed() {
            while self.plan.hold.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        let left = self.plan.panic_in.load(Ordering::SeqCst);
        self.plan.panic_in.store(left.saturating_sub(1), Ordering::SeqCst);
        assert_ne!(left, 1, "planted");
        self.inner.step(rows, out)
    }
}
