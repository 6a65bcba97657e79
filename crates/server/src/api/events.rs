//! The engine's events, from its thread to the task that answers, and what the requests under way come to.
//!
//! The engine's thread puts events into a queue and never waits. When [`limits::EVENTS`] of a request wait to be read, its client is slow: the request rests, without
//! pages, until half of them have been read. A client that takes nothing at all loses its connection (`wire.rs`), and with it the request.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selfspec_engine::{Demand, Engine, EngineError, Event, EventSink, Request};
use tokio::sync::mpsc;

use crate::http::limits;
use crate::observe::watch::Watch;

/// What the requests that have been taken on come to, against what the server takes.
#[derive(Debug)]
pub(crate) struct Load {
    requests: AtomicUsize,
    tokens: AtomicUsize, // of their prompts
    most_requests: usize,
    most_tokens: usize,
}

impl Load {
    pub(crate) fn new(most_requests: usize, most_tokens: usize) -> Arc<Self> {
        Arc::new(Load { requests: AtomicUsize::new(0), tokens: AtomicUsize::new(0), most_requests, most_tokens })
    }

    /// Takes on a request of so many choices and prompt tokens in all; why not, if it is too much. One alone is never too much.
    pub(crate) fn take(self: &Arc<Self>, choices: usize, tokens: usize) -> Result<Share, String> {
        let share = Share { load: self.clone(), choices, tokens };
        let requests = self.requests.fetch_add(choices, Ordering::SeqCst);
        let waiting = self.tokens.fetch_add(tokens, Ordering::SeqCst);
        if requests > 0 && requests + choices > self.most_requests {
            return Err(format!("{requests} requests are under way, and this server takes {}", self.most_requests));
        }
        if waiting > 0 && waiting + tokens > self.most_tokens {
            return Err(format!("{waiting} prompt tokens are under way, and this server takes {}", self.most_tokens));
        }
        Ok(share)
    }

    /// Requests that have been taken on and are not over.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A request's part of the load, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    load: Arc<Load>,
    choices: usize,
    tokens: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.load.requests.fetch_sub(self.choices, Ordering::SeqCst);
        self.load.tokens.fetch_sub(self.tokens, Ordering::SeqCst);
    }
}

/// The engine's end of a choice's events.
#[derive(Debug)]
struct Sink {
    choice: usize,
    events: mpsc::UnboundedSender<(usize, Event)>,
    under_way: Arc<AtomicUsize>, // events of all choices that have not been read
    watch: Option<Arc<Watch>>,
    rests: Cell<bool>,
    ended: bool,
}

impl EventSink for Sink {
    fn take(&mut self, event: Event) {
        self.ended |= matches!(event, Event::Done(_) | Event::Failed(_));
        if let Some(watch) = &self.watch {
            watch.note(self.choice, &event);
        }
        self.under_way.fetch_add(1, Ordering::SeqCst);
        // If nobody is there to read it, the demand says so.
        let _ = self.events.send((self.choice, event));
    }

    fn demand(&self) -> Demand {
        if self.events.is_closed() {
            return Demand::Never;
        }
        let most = if self.rests.get() { limits::EVENTS / 2 } else { limits::EVENTS };
        self.rests.set(self.under_way.load(Ordering::SeqCst) >= most);
        if self.rests.get() { Demand::Later } else { Demand::More }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.ended {
            self.take(Event::Failed(EngineError::Stopped));
        }
    }
}

/// The events of a request's choices, each with the choice's index. Dropping them cancels what is under way.
#[derive(Debug)]
pub(crate) struct Events {
    events: mpsc::UnboundedReceiver<(usize, Event)>,
    first: Option<(usize, Event)>, // that was waited for, and has not been read
    under_way: Arc<AtomicUsize>,
    _share: Share,
}

impl Events {
    /// Submits the requests of the choices.
    ///
    /// # Errors
    /// The engine refuses one of them; none is under way then.
    pub(crate) fn submit(
        engine: &Engine,
        choices: Vec<Request>,
        share: Share,
        watch: &Arc<Watch>,
    ) -> Result<Self, EngineError> {
        let refused = || watch.forget();
        let (sender, events) = mpsc::unbounded_channel();
        let under_way = Arc::new(AtomicUsize::new(0));
        for (choice, request) in choices.into_iter().enumerate() {
            let (events, under_way) = (sender.clone(), under_way.clone());
            let watch = Some(watch.clone());
            let sink = Sink { choice, events, under_way, watch, rests: Cell::new(false), ended: false };
            engine.submit_to(request, Box::new(sink)).inspect_err(|_| refused())?;
        }
        Ok(Events { events, first: None, under_way, _share: share })
    }

    /// Waits until a choice has begun.
    ///
    /// # Errors
    /// It failed before: the answer can be an error with a status of its own.
    pub(crate) async fn begun(&mut self) -> Result<(), EngineError> {
        match self.next().await {
            Some((_, Event::Failed(error))) => Err(error),
            first => {
                self.first = first;
                Ok(())
            }
        }
    }

    /// The next event; `None` when all choices are over.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = self.events.recv().await;
        self.note(event)
    }

    /// An event that is there already.
    pub(crate) fn ready(&mut self) -> Option<(usize, Event)> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = self.events.try_recv().ok();
        self.note(event)
    }

    fn note(&self, event: Option<(usize, Event)>) -> Option<(usize, Event)> {
        if event.is_some() {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sinks(n: usize) -> (Vec<Sink>, Events) {
        let (sender, events) = mpsc::unbounded_channel();
        let under_way = Arc::new(AtomicUsize::new(0));
        let sink = |choice| {
            let (events, under_way) = (sender.clone(), under_way.clone());
            Sink { choice, events, under_way, watch: None, rests: Cell::new(false), ended: false }
        };
        let share = Load::new(1, 1).take(1, 1).expect("room");
        ((0..n).map(sink).collect(), Events { events, first: None, under_way, _share: share })
    }

    #[test]
    fn a_request_rests_while_its_events_are_not_read_and_goes_on_when_half_of_them_are() {
        let (mut sinks, mut events) = sinks(2);
        for i in 0..limits::EVENTS {
            assert_eq!(sinks[i % 2].demand(), Demand::More);
            sinks[i % 2].take(Event::Prompt { tokens: i });
        }
        assert_eq!([sinks[0].demand(), sinks[1].demand()], [Demand::Later; 2], "the choices share what may wait");
        for read in 0..limits::EVENTS / 2 {
            assert!(sinks.iter().all(|sink| sink.demand() == Demand::Later), "{read} were read");
            let (choice, event) = events.ready().expect("there are");
            assert!(choice == read % 2 && matches!(event, Event::Prompt { tokens } if tokens == read));
        }
        assert_eq!(sinks[0].demand(), Demand::Later);
        events.ready().expect("there are");
        assert_eq!(sinks[0].demand(), Demand::More);
        drop(events);
        assert_eq!(sinks[0].demand(), Demand::Never);
    }

    #[test]
    fn a_choice_that_the_engine_drops_has_failed() {
        let (sinks, mut events) = sinks(1);
        drop(sinks);
        assert!(matches!(events.ready(), Some((0, Event::Failed(EngineError::Stopped)))));
        assert!(events.ready().is_none());
    }

    #[test]
    fn the_load_is_bounded_and_given_back() {
        let load = Load::new(2, 100);
        let big = load.take(5, 1000).expect("one alone is never too much");
        assert!(load.take(1, 1).expect_err("full").contains("5 requests are under way"));
        drop(big);
        let one = load.take(1, 90).expect("room");
        assert!(load.take(1, 20).expect_err("too many tokens").contains("90 prompt tokens"));
        let two = load.take(1, 10).expect("room");
        assert_eq!(load.requests(), 2);
        drop((one, two));
        assert_eq!((load.requests(), load.tokens.load(Ordering::SeqCst)), (0, 0));
    }
}
