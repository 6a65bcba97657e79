//! The thread that owns the backend: one loop that schedules requests and runs steps.
//!
//! Every turn of the loop takes new requests, ends those that must end, admits what fits, and runs
//! one step. A step holds the rows of all running requests. The thread sleeps only when it has no
//! work.
//!
//! **Pages.** A request is admitted when there are pages for its prompt and its first round, not
//! for all that it may generate. When the cache is full, the youngest running request is preempted:
//! it gives its pages back and waits first in the queue. Later it computes its tokens again, to the
//! same bits. The oldest request is never preempted, and one alone always fits, so all come to
//! their end.
//!
//! **Slow consumers.** A request whose consumer [takes nothing for now](SinkDemand::Later) is
//! paused: it gives its place and its pages back within a step. It waits first in the queue once
//! there is demand again. No request waits for the consumer of another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use selfspec_model::{Backend, DraftOutput, Row, StepOutput};
use selfspec_speculate::{CommittedToken, CostModel};

use crate::error::EngineError;
use crate::events::event::Event;
use crate::fault::EngineFault;
use crate::observe::counters::{Counters, EngineLoad};
use crate::options::EngineOptions;
use crate::scheduler::prefix_cache::PrefixCache;
use crate::scheduler::queued_request::QueueEntry;
use crate::scheduler::running_request::RunningRequest;

#[cfg(doc)]
use crate::events::sink::SinkDemand;

/// How often an idle thread asks whether the consumer of a paused request takes events again.
const DEMAND_INTERVAL: Duration = Duration::from_millis(10);

/// Builds the backend again after a panic.
pub(crate) type RebuildBackend = Box<dyn Fn() -> Result<Box<dyn Backend>, EngineError> + Send>;

/// The state of the thread.
pub(crate) struct EngineThread {
    pub(super) backend: Box<dyn Backend>,
    pub(super) rebuild: Option<RebuildBackend>,
    /// The message of a panic that the backend did not survive: no step can be run any more.
    pub(super) broken: Option<String>,
    pub(super) arrivals: Receiver<QueueEntry>,
    pub(super) queue: VecDeque<QueueEntry>,  // first come, first served
    pub(super) running: Vec<RunningRequest>, // in order of admission
    pub(super) paused: Vec<RunningRequest>,  // without pages, since their consumers take nothing for now
    pub(super) prefixes: PrefixCache,
    pub(super) max_batch: usize,
    pub(super) prefill_chunk: usize,
    pub(super) costs: CostModel,
    pub(super) fault: Option<EngineFault>,
    pub(super) counters: Arc<Counters>,
    pub(super) rows: Vec<Row>,                 // of one step, each sequence's rows together
    pub(super) output: StepOutput,             // of one step
    pub(super) drafted: DraftOutput,           // of one whole draft
    pub(super) committed: Vec<CommittedToken>, // of one sequence in one step
}

impl EngineThread {
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        rebuild: Option<RebuildBackend>,
        arrivals: Receiver<QueueEntry>,
        options: &EngineOptions,
        counters: Arc<Counters>,
    ) -> Self {
        EngineThread {
            backend,
            rebuild,
            broken: None,
            arrivals,
            queue: VecDeque::new(),
            running: Vec::new(),
            paused: Vec::new(),
            prefixes: PrefixCache::new(options.prefix_cache),
            max_batch: options.max_batch.max(1),
            prefill_chunk: options.prefill_chunk.max(1),
            costs: CostModel::new(),
            fault: options.fault,
            counters,
            rows: Vec::new(),
            output: StepOutput::default(),
            drafted: DraftOutput::default(),
            committed: Vec::new(),
        }
    }

    /// Runs until the engine's handle is dropped. Requests that have not ended by then fail with
    /// [`EngineError::Stopped`].
    pub(crate) fn run(mut self) {
        self.publish_counters();
        while self.receive() {
            self.end_unwanted();
            self.requeue_paused();
            self.admit();
            self.publish_counters();
            self.step();
            self.pause_slow_consumers();
            self.publish_counters();
        }
        self.stop();
    }

    /// Moves new requests to the queue. Waits for one when there is nothing to do. False once the
    /// handle is gone.
    pub(super) fn receive(&mut self) -> bool {
        if self.running.is_empty() && self.queue.is_empty() {
            let next = if self.paused.is_empty() {
                self.arrivals.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.arrivals.recv_timeout(DEMAND_INTERVAL)
            };
            match next {
                Ok(entry) => self.queue.push_back(entry),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match self.arrivals.try_recv() {
                Ok(entry) => self.queue.push_back(entry),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Publishes the number of requests and pages for metrics.
    fn publish_counters(&self) {
        let backend = &*self.backend;
        // A backend that did not survive a panic may panic again.
        let pages = self.broken.is_none().then(|| {
            let (all, positions) = (backend.total_pages(), backend.page_positions());
            let running = self.running.iter().map(|request| request.step_pages(positions)).sum();
            [all, all - backend.free_pages().min(all), running]
        });
        let waiting = self.queue.iter().filter(|entry| matches!(entry, QueueEntry::Request(_))).count();
        self.counters.at_hand(EngineLoad { running: self.running.len(), waiting, pages });
    }

    /// Fails all requests that are left.
    fn stop(&mut self) {
        let backend = &mut *self.backend;
        for request in self.running.drain(..).chain(self.paused.drain(..)) {
            request.close(backend, Event::Failed(EngineError::Stopped));
        }
        for entry in self.queue.drain(..) {
            if let QueueEntry::Request(request) = entry {
                request.refuse(EngineError::Stopped, backend);
            }
        }
    }
}
