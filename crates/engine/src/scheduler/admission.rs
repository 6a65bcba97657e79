//! Which requests run: admission, preemption, pauses, and early ends.

use std::time::Instant;

use crate::error::EngineError;
use crate::events::sink::SinkDemand;
use crate::scheduler::engine_thread::EngineThread;
use crate::scheduler::queued_request::{QueueEntry, QueuedRequest};
use crate::scheduler::running_request::RunningRequest;

impl EngineThread {
    /// Ends requests that were cancelled or whose deadlines have passed, wherever they are.
    pub(super) fn end_unwanted(&mut self) {
        let (backend, now) = (&mut *self.backend, Instant::now());
        for request in self.running.extract_if(.., |request| request.must_end(now)) {
            request.end_early(backend);
        }
        for request in self.paused.extract_if(.., |request| request.must_end(now)) {
            request.end_early(backend);
        }
        let must_end = |entry: &QueueEntry| matches!(entry, QueueEntry::Request(request) if request.must_end(now));
        if self.queue.iter().any(must_end) {
            for entry in std::mem::take(&mut self.queue) {
                match entry {
                    QueueEntry::Request(request) if request.must_end(now) => request.end_early(backend),
                    other => self.queue.push_back(other),
                }
            }
        }
    }

    /// Queues paused requests whose consumers take events again, first in the queue and in their
    /// order.
    pub(super) fn requeue_paused(&mut self) {
        let wanted: Vec<_> = self.paused.extract_if(.., |request| request.demand() == SinkDemand::More).collect();
        for request in wanted.into_iter().rev() {
            self.queue_first(request);
        }
    }

    /// Pauses running requests whose consumers take nothing for now.
    pub(super) fn pause_slow_consumers(&mut self) {
        for mut request in self.running.extract_if(.., |request| request.demand() == SinkDemand::Later) {
            request.pause(&mut *self.backend, &mut self.prefixes);
            if request.has_ended() {
                request.finish(&mut *self.backend, &mut self.prefixes);
            } else {
                self.paused.push(request);
            }
        }
    }

    /// Admits queued requests in order, while there are pages for the next one. None overtakes
    /// another: a long request would wait for ever behind a stream of short ones.
    pub(super) fn admit(&mut self) {
        while let Some(next) = self.queue.front() {
            let fits = match next {
                QueueEntry::Request(_) if self.broken.is_some() => true,
                QueueEntry::Request(request) => self.has_room(request.next_pages(self.backend.page_positions())),
                QueueEntry::Exclusive(_) => self.running.is_empty(),
            };
            if !fits {
                return;
            }
            match (self.queue.pop_front(), &self.broken) {
                (Some(QueueEntry::Request(request)), None) => self.start(request),
                (Some(QueueEntry::Request(request)), Some(message)) => {
                    request.refuse(EngineError::Panic { message: message.clone() }, &mut *self.backend);
                }
                (Some(QueueEntry::Exclusive(work)), None) => {
                    self.prefixes.shrink(&mut *self.backend, 0);
                    if !work(Ok(&mut *self.backend)) {
                        self.restore_backend("exclusive work");
                    }
                }
                (Some(QueueEntry::Exclusive(work)), Some(message)) => {
                    work(Err(message.clone()));
                }
                (None, _) => return,
            }
        }
    }

    /// Runs a request from now on.
    fn start(&mut self, request: QueuedRequest) {
        let backend = &mut *self.backend;
        self.running.push(match request {
            QueuedRequest::New(request) => {
                let beside = self.running.len();
                let request = RunningRequest::admit(*request, backend, &mut self.prefixes, beside, &self.costs);
                self.counters.admitted(request.speculates(), request.prompt_tokens(), request.cached_tokens());
                request
            }
            QueuedRequest::Preempted(mut request) => {
                request.resume(backend, &mut self.prefixes);
                *request
            }
        });
    }

    /// Whether a request that needs `pages` can run beside the others and their next rounds.
    fn has_room(&self, pages: usize) -> bool {
        let positions = self.backend.page_positions();
        let needed: usize = self.running.iter().map(|request| request.next_pages(positions)).sum();
        self.running.len() < self.max_batch && needed + pages <= self.backend.total_pages()
    }

    /// Preempts the youngest running requests until the rows of the step have pages.
    pub(super) fn preempt_for_step(&mut self) {
        let (positions, total) = (self.backend.page_positions(), self.backend.total_pages());
        let mut needed: usize = self.running.iter().map(|request| request.step_pages(positions)).sum();
        while needed > total && self.running.len() > 1 {
            let Some(mut youngest) = self.running.pop() else { return };
            needed -= youngest.step_pages(positions);
            self.rows.retain(|row| !youngest.has_seq(row.seq));
            youngest.preempt(&mut *self.backend);
            self.counters.preempted();
            self.queue_first(youngest);
        }
        self.prefixes.shrink(&mut *self.backend, total.saturating_sub(needed));
    }

    /// Puts a request first in the queue.
    fn queue_first(&mut self, request: RunningRequest) {
        self.queue.push_front(QueueEntry::Request(QueuedRequest::Preempted(Box::new(request))));
    }
}
