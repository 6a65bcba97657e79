//! Where the events of a request go.

use crate::events::event::Event;

/// Takes the events of one request as they come. The engine's thread calls it, and every request
/// waits for it: it must neither block nor panic.
pub trait EventSink: Send {
    /// Takes the next event. After [`Event::Done`] or [`Event::Failed`] there is none; an engine
    /// that goes away without either drops the sink.
    fn take(&mut self, event: Event);

    /// What else the consumer would take. It is asked before each step; a round that is under way
    /// may bring a few events after [`SinkDemand::Later`].
    fn demand(&self) -> SinkDemand {
        SinkDemand::More
    }
}

/// What a consumer wants of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkDemand {
    /// Events, as fast as they come.
    More,
    /// Nothing for now: the request gives its place and its pages to others, and goes on, to the
    /// same tokens, when there is demand again.
    Later,
    /// Nothing ever again: the request is cancelled.
    Never,
}

impl EventSink for std::sync::mpsc::Sender<Event> {
    fn take(&mut self, event: Event) {
        // A consumer that is gone has set the request's cancel flag as well.
        let _ = self.send(event);
    }
}
