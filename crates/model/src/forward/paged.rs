//! A backend made of the KV index and an executor.

use std::sync::Arc;

use crate::backend::{Backend, BackendError};
use crate::forward::executor::Executor;
use crate::kv::index::KvIndex;
use crate::output::{StepOutput, StepReadouts};
use crate::profile::Profiler;
use crate::row::{ExitHeadInfo, Row, SeqId, TokenId};

/// The [`Backend`] of any [`Executor`]: the index checks and places rows, the executor computes
/// them.
#[derive(Debug)]
pub struct PagedBackend<E> {
    index: KvIndex,
    executor: E,
}

impl<E: Executor> PagedBackend<E> {
    /// A backend with an empty cache.
    pub fn of(executor: E) -> Self {
        PagedBackend { index: KvIndex::new(executor.shape()), executor }
    }

    /// The device's half.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The device's half, to change it.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// From now on every roll-back leaves one position too many: a fault for diagnoses to find.
    pub(crate) fn plant_short_rollback(&mut self) {
        self.index.plant_short_rollback();
    }
}

impl<E: Executor> Backend for PagedBackend<E> {
    fn n_layers(&self) -> usize {
        self.index.shape().n_layers
    }

    fn vocab(&self) -> usize {
        self.index.shape().vocab
    }

    fn context(&self) -> usize {
        self.index.shape().context
    }

    fn page_positions(&self) -> usize {
        self.index.shape().page_positions
    }

    fn free_pages(&self) -> usize {
        self.index.free_pages()
    }

    fn total_pages(&self) -> usize {
        self.index.shape().pages as usize
    }

    fn create(&mut self) -> SeqId {
        self.index.create()
    }

    fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, BackendError> {
        let (fork, copy) = self.index.fork(seq, len)?;
        self.executor.copy_pages(copy.as_slice());
        Ok(fork)
    }

    fn free(&mut self, seq: SeqId) {
        self.index.free(seq);
    }

    fn kv_len(&self, seq: SeqId) -> Result<usize, BackendError> {
        Ok(self.index.sequence(seq)?.len)
    }

    fn set_len(&mut self, seq: SeqId, len: usize) -> Result<(), BackendError> {
        self.index.set_len(seq, len)
    }

    fn has_auxiliary(&self, seq: SeqId) -> Result<bool, BackendError> {
        Ok(self.index.sequence(seq)?.auxiliary)
    }

    fn drop_auxiliary(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.index.drop_auxiliary(seq)
    }

    fn step_with(
        &mut self,
        rows: &[Row],
        readouts: &StepReadouts<'_>,
        out: &mut StepOutput,
    ) -> Result<(), BackendError> {
        out.clear();
        let step = self.index.admit(rows)?;
        self.executor.copy_pages(step.copies());
        let run = self.executor.run(&step, readouts, out);
        run.inspect_err(|_| {
            out.clear();
            self.index.forget_uncommitted(rows);
        })
    }

    fn draft_vocab(&self) -> Option<&Arc<[TokenId]>> {
        self.index.shape().draft_vocab.as_ref()
    }

    fn exit_head(&self) -> Option<&ExitHeadInfo> {
        self.index.shape().exit_head.as_ref()
    }

    fn profiler(&mut self) -> Option<&mut Profiler> {
        self.executor.profiler()
    }
}
