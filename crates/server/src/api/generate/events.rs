//! The events of a request, from the engine's thread to the task that answers.
//!
//! The engine's thread adds events to a queue and never waits. When [`limits::UNREAD_EVENTS`]
//! events of a request are unread, its client is slow: the request pauses, without pages, until
//! half of them have been read. A client that reads nothing at all loses its connection after a
//! time (`http/stall.rs`), which cancels the request.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selfspec_engine::{Engine, EngineError, Event, EventSink, Request, SinkDemand};
use tokio::sync::mpsc;

use crate::http::admission::AdmissionPermit;
use crate::http::limits;
use crate::observe::observer::RequestObserver;

/// The engine's end of a choice's event queue.
#[derive(Debug)]
struct ChoiceSink {
    choice: usize,
    events: mpsc::UnboundedSender<(usize, Event)>,
    unread: Arc<AtomicUsize>, // events of all choices
    observer: Option<Arc<RequestObserver>>,
    paused: Cell<bool>,
    ended: bool,
}

impl EventSink for ChoiceSink {
    fn take(&mut self, event: Event) {
        self.ended |= matches!(event, Event::Done(_) | Event::Failed(_));
        if let Some(observer) = &self.observer {
            observer.observe(self.choice, &event);
        }
        self.unread.fetch_add(1, Ordering::SeqCst);
        // It fails when the reader is gone, which `demand` reports.
        let _ = self.events.send((self.choice, event));
    }

    fn demand(&self) -> SinkDemand {
        if self.events.is_closed() {
            return SinkDemand::Never;
        }
        let most = if self.paused.get() { limits::UNREAD_EVENTS / 2 } else { limits::UNREAD_EVENTS };
        self.paused.set(self.unread.load(Ordering::SeqCst) >= most);
        if self.paused.get() { SinkDemand::Later } else { SinkDemand::More }
    }
}

impl Drop for ChoiceSink {
    fn drop(&mut self) {
        if !self.ended {
            self.take(Event::Failed(EngineError::Stopped));
        }
    }
}

/// The events of a request's choices, each with the choice's index. Dropping it cancels the choices
/// that have not ended.
#[derive(Debug)]
pub(crate) struct GenerationEvents {
    events: mpsc::UnboundedReceiver<(usize, Event)>,
    first: Option<(usize, Event)>, // received by `begun`, and unread
    unread: Arc<AtomicUsize>,
    _permit: AdmissionPermit,
}

impl GenerationEvents {
    /// Submits the requests of the choices.
    ///
    /// # Errors
    /// The engine refuses one of them; then none runs.
    pub(crate) fn submit(
        engine: &Engine,
        choices: Vec<Request>,
        permit: AdmissionPermit,
        observer: &Arc<RequestObserver>,
    ) -> Result<Self, EngineError> {
        let (sender, events) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        for (choice, request) in choices.into_iter().enumerate() {
            let (events, unread) = (sender.clone(), unread.clone());
            let (paused, ended) = (Cell::new(false), false);
            let sink = ChoiceSink { choice, events, unread, observer: Some(observer.clone()), paused, ended };
            engine.submit_to(request, Box::new(sink)).inspect_err(|_| observer.forget())?;
        }
        Ok(GenerationEvents { events, first: None, unread, _permit: permit })
    }

    /// Waits until a choice runs.
    ///
    /// # Errors
    /// A choice failed before: the answer can still have an error status.
    pub(crate) async fn begun(&mut self) -> Result<(), EngineError> {
        match self.next().await {
            Some((_, Event::Failed(error))) => Err(error),
            first => {
                self.first = first;
                Ok(())
            }
        }
    }

    /// The next event; `None` when all choices have ended.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = self.events.recv().await;
        self.count(event)
    }

    /// The next event, if it is there already.
    pub(crate) fn ready(&mut self) -> Option<(usize, Event)> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = self.events.try_recv().ok();
        self.count(event)
    }

    fn count(&self, event: Option<(usize, Event)>) -> Option<(usize, Event)> {
        if event.is_some() {
            self.unread.fetch_sub(1, Ordering::SeqCst);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::admission::RequestAdmission;

    fn sinks(n: usize) -> (Vec<ChoiceSink>, GenerationEvents) {
        let (sender, events) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let sink = |choice| {
            let (events, unread) = (sender.clone(), unread.clone());
            ChoiceSink { choice, events, unread, observer: None, paused: Cell::new(false), ended: false }
        };
        let permit = RequestAdmission::new(1, 1).admit(1, 1).expect("room");
        ((0..n).map(sink).collect(), GenerationEvents { events, first: None, unread, _permit: permit })
    }

    #[test]
    fn a_request_pauses_until_half_of_its_unread_events_are_read() {
        let (mut sinks, mut events) = sinks(2);
        for i in 0..limits::UNREAD_EVENTS {
            assert_eq!(sinks[i % 2].demand(), SinkDemand::More);
            sinks[i % 2].take(Event::Prompt { tokens: i });
        }
        assert_eq!([sinks[0].demand(), sinks[1].demand()], [SinkDemand::Later; 2], "the choices share the limit");
        for read in 0..limits::UNREAD_EVENTS / 2 {
            assert!(sinks.iter().all(|sink| sink.demand() == SinkDemand::Later), "{read} were read");
            let (choice, event) = events.ready().expect("an event");
            assert!(choice == read % 2 && matches!(event, Event::Prompt { tokens } if tokens == read));
        }
        assert_eq!(sinks[0].demand(), SinkDemand::Later);
        events.ready().expect("an event");
        assert_eq!(sinks[0].demand(), SinkDemand::More);
        drop(events);
        assert_eq!(sinks[0].demand(), SinkDemand::Never);
    }

    #[test]
    fn a_choice_that_the_engine_drops_fails() {
        let (sinks, mut events) = sinks(1);
        drop(sinks);
        assert!(matches!(events.ready(), Some((0, Event::Failed(EngineError::Stopped)))));
        assert!(events.ready().is_none());
    }
}
