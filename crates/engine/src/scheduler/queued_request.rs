//! The entries of the queue: requests that wait for pages, and exclusive work.

use std::time::Instant;

use selfspec_model::Backend;

use crate::error::EngineError;
use crate::events::event::Event;
use crate::scheduler::checked_request::CheckedRequest;
use crate::scheduler::running_request::RunningRequest;

/// Work on the backend while no request runs. It gets the message of a panic that the backend did
/// not survive instead. Returns false if it panicked.
pub(crate) type ExclusiveWork = Box<dyn FnOnce(Result<&mut dyn Backend, String>) -> bool + Send>;

/// A request that waits to be admitted, or resumed.
pub(crate) enum QueuedRequest {
    /// Never admitted so far.
    New(Box<CheckedRequest>),
    /// It ran, and others have its pages.
    Preempted(Box<RunningRequest>),
}

/// An entry of the queue.
pub(crate) enum QueueEntry {
    Request(QueuedRequest),
    Exclusive(ExclusiveWork),
}

impl QueuedRequest {
    /// Pages that its next round needs.
    pub(crate) fn next_pages(&self, page_positions: usize) -> usize {
        match self {
            QueuedRequest::New(request) => request.next_pages(page_positions),
            QueuedRequest::Preempted(request) => request.next_pages(page_positions),
        }
    }

    /// Whether it must end early: it was cancelled, or its deadline has passed.
    pub(crate) fn must_end(&self, now: Instant) -> bool {
        match self {
            QueuedRequest::New(request) => request.must_end(now),
            QueuedRequest::Preempted(request) => request.must_end(now),
        }
    }

    /// Ends a request that [must end](QueuedRequest::must_end).
    pub(crate) fn end_early(self, backend: &mut dyn Backend) {
        match self {
            QueuedRequest::New(request) => request.end_early(),
            QueuedRequest::Preempted(request) => request.end_early(backend),
        }
    }

    /// Ends it with an error.
    pub(crate) fn refuse(self, error: EngineError, backend: &mut dyn Backend) {
        match self {
            QueuedRequest::New(request) => request.refuse(error),
            QueuedRequest::Preempted(request) => request.close(backend, Event::Failed(error)),
        }
    }
}
