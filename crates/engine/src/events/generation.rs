//! The consumer's end of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::error::EngineError;
use crate::events::event::{Event, RequestSummary};

/// A request on its way: an iterator over its events that blocks until the next one, and ends after
/// [`Event::Done`] or [`Event::Failed`]. Dropping it cancels the request.
#[derive(Debug)]
pub struct Generation {
    events: Receiver<Event>,
    canceller: Canceller,
    ended: bool,
}

/// Cancels a request from anywhere, for example from a signal handler's thread.
#[derive(Debug, Clone)]
pub struct Canceller(pub(crate) Arc<AtomicBool>);

impl Canceller {
    /// Ends the request at the next step, with what it has generated so far.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Generation {
    pub(crate) fn new(events: Receiver<Event>, canceller: Canceller) -> Self {
        Generation { events, canceller, ended: false }
    }

    /// Ends the request at the next step, with what it has generated so far: the stream goes on to
    /// an [`Event::Done`] whose reason is `cancelled`, unless it ends otherwise first. Text that
    /// was held back because it might have become part of a stop string, or a character, is left
    /// out.
    pub fn cancel(&self) {
        self.canceller.cancel();
    }

    /// A handle that can cancel the request while another thread waits for its events.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The next event, waiting for it at most `timeout`. `Ok(None)`: the stream has ended.
    ///
    /// # Errors
    /// [`TimedOut`] when nothing came in time.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, TimedOut> {
        if self.ended {
            return Ok(None);
        }
        match self.events.recv_timeout(timeout) {
            Ok(event) => Ok(Some(self.note(event))),
            Err(RecvTimeoutError::Timeout) => Err(TimedOut),
            Err(RecvTimeoutError::Disconnected) => Ok(Some(self.note(Event::Failed(EngineError::Stopped)))),
        }
    }

    /// Waits for the end and gives the summary.
    ///
    /// # Errors
    /// The error of [`Event::Failed`].
    pub fn wait(self) -> Result<RequestSummary, EngineError> {
        for event in self {
            match event {
                Event::Done(summary) => return Ok(*summary),
                Event::Failed(error) => return Err(error),
                Event::Prompt { .. } | Event::Token(_) => {}
            }
        }
        Err(EngineError::Stopped)
    }

    fn note(&mut self, event: Event) -> Event {
        self.ended = matches!(event, Event::Done(_) | Event::Failed(_));
        event
    }
}

/// No event came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no event came in time")]
pub struct TimedOut;

impl Iterator for Generation {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().unwrap_or(Event::Failed(EngineError::Stopped));
        Some(self.note(event))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}
