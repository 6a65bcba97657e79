//! The engine thread, driven by hand.

use std::sync::Arc;
use std::sync::mpsc;

use selfspec_testkit::fake_target::{FakeOptions, fake_target};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::events::event::Event;
use crate::options::EngineOptions;
use crate::request::{Prompt, Request};
use crate::scheduler::engine_thread::EngineThread;
use crate::scheduler::queued_request::QueueEntry;
use crate::scheduler::queued_request::QueuedRequest;

#[test]
fn requests_that_run_or_wait_end_as_stopped_when_the_handle_goes() {
    let fake = || Box::new(fake_target(FakeOptions::default()));
    let engine = Engine::with_backend(fake(), None, None, &EngineOptions::default()).expect("a thread");
    let (sender, arrivals) = mpsc::channel();
    let options = EngineOptions { max_batch: 1, prefill_chunk: 16, ..EngineOptions::default() };
    let mut thread = EngineThread::new(fake(), None, arrivals, &options, Arc::default());
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let (sink, events) = mpsc::channel();
            let request = engine.prepare(Request::new(Prompt::Tokens(vec![1])), Box::new(sink)).expect("sound");
            let entry = QueueEntry::Request(QueuedRequest::New(Box::new(request)));
            sender.send(entry).expect("the thread is there");
            events
        })
        .collect();
    assert!(thread.receive());
    thread.admit();
    thread.step();
    assert_eq!((thread.running.len(), thread.queue.len()), (1, 2));
    drop(sender);
    thread.run();
    for events in streams {
        assert!(matches!(events.iter().last(), Some(Event::Failed(EngineError::Stopped))));
    }
}
