//! Consumers that are called, that are slow, that leave; and requests that run out of time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use selfspec_engine::{Engine, EngineError, EngineOptions, Event, EventSink, FinishReason, Request, SinkDemand};
use selfspec_testkit::fake_target::{FakeOptions, fake_target};
use selfspec_testkit::faulty_backend::FaultyBackend;

use crate::common::{answer, collect, engine, engine_with, faults, layer_skip, request, scripted};

const MORE: u8 = 0;
const LATER: u8 = 1;
const NEVER: u8 = 2;

/// A consumer whose demand the test sets.
#[derive(Clone, Default)]
struct Consumer {
    events: Arc<Mutex<Vec<Event>>>,
    demand: Arc<AtomicU8>,
    most: Option<usize>, // events after which it wants no more for now
}

impl EventSink for Consumer {
    fn take(&mut self, event: Event) {
        let mut events = self.events.lock().expect("nobody panics with it");
        events.push(event);
        if self.most.is_some_and(|most| events.len() == most) {
            self.wants(LATER);
        }
    }

    fn demand(&self) -> SinkDemand {
        match self.demand.load(Ordering::SeqCst) {
            MORE => SinkDemand::More,
            LATER => SinkDemand::Later,
            _ => SinkDemand::Never,
        }
    }
}

impl Consumer {
    fn wants(&self, demand: u8) {
        self.demand.store(demand, Ordering::SeqCst);
    }

    fn len(&self) -> usize {
        self.events.lock().expect("nobody panics with it").len()
    }

    fn ids(&self) -> Vec<u32> {
        let events = self.events.lock().expect("nobody panics with it");
        events.iter().filter_map(|event| if let Event::Token(token) = event { Some(token.id) } else { None }).collect()
    }

    /// Waits for the last event.
    fn end(&self) -> Result<FinishReason, EngineError> {
        loop {
            let mut events = self.events.lock().expect("nobody panics with it");
            match events.pop_if(|event| matches!(event, Event::Done(_) | Event::Failed(_))) {
                Some(Event::Done(summary)) => return Ok(summary.finish_reason),
                Some(Event::Failed(error)) => return Err(error),
                _ => drop(events),
            }
            std::thread::yield_now();
        }
    }
}

fn submit(engine: &Engine, request: Request, consumer: &Consumer) {
    engine.submit_to(request, Box::new(consumer.clone())).expect("accepted");
}

/// Waits until every page is free, in steps of other requests.
fn pages_are_free(engine: &Engine) {
    let (free, total) = engine.exclusive(|b| (b.free_pages(), b.total_pages())).expect("it goes on");
    assert_eq!(free, total);
}

#[test]
fn a_sink_takes_what_an_iterator_would_give() {
    let engine = engine(fake_target(FakeOptions::default()), None);
    let expected = answer(&engine, request(&[1, 2, 3], 40));
    let consumer = Consumer::default();
    submit(&engine, request(&[1, 2, 3], 40), &consumer);
    assert_eq!(consumer.end().expect("answered"), FinishReason::Length);
    assert_eq!(consumer.ids(), expected.summary.token_ids);
    assert_eq!(consumer.len(), 41, "the prompt and the tokens");
}

#[test]
fn a_request_whose_consumer_is_slow_gives_its_pages_to_others_and_goes_on_to_the_same_tokens() {
    for prefix_cache in [false, true] {
        let options = EngineOptions { max_batch: 1, prefix_cache, ..EngineOptions::default() };
        let engine = engine_with(fake_target(FakeOptions::default()), None, &options);
        let ask = || Request { speculation: layer_skip(8, 3, 4), ..request(&[1, 2, 3], 120) };
        let expected = answer(&engine, ask());
        let slow = Consumer { most: Some(60), ..Consumer::default() };
        submit(&engine, ask(), &slow);
        // One place, and the others come to their ends: the slow one does not hold it, nor any
        // page.
        answer(&engine, request(&[5], 100));
        while slow.len() < 60 {
            std::thread::yield_now();
        }
        pages_are_free(&engine);
        let held = slow.len();
        assert!((60..66).contains(&held), "{held}: only what the round brought");
        answer(&engine, request(&[5], 50));
        assert_eq!(slow.len(), held);
        slow.wants(MORE);
        assert_eq!(slow.end().expect("answered"), FinishReason::Length);
        assert_eq!(slow.ids(), expected.summary.token_ids);
        pages_are_free(&engine);
    }
}

#[test]
fn a_request_that_nobody_wants_any_more_is_cancelled_wherever_it_is() {
    let faults = faults();
    let options = EngineOptions { max_batch: 1, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    let aside = Consumer { most: Some(5), ..Consumer::default() };
    submit(&engine, request(&[1], 400), &aside);
    while aside.len() < 5 {
        std::thread::yield_now();
    }
    answer(&engine, request(&[1], 1));
    faults.hold.store(true, Ordering::SeqCst);
    let (live, waiting) = (Consumer::default(), Consumer::default());
    submit(&engine, request(&[1], 400), &live);
    submit(&engine, request(&[1], 400), &waiting);
    for consumer in [&aside, &live, &waiting] {
        consumer.wants(NEVER);
    }
    faults.hold.store(false, Ordering::SeqCst);
    for consumer in [&aside, &live, &waiting] {
        assert_eq!(consumer.end().expect("not failed"), FinishReason::Cancelled);
    }
    assert!(live.len() < 4 && waiting.len() == 0, "nobody computed what nobody wanted");
    pages_are_free(&engine);
}

#[test]
fn what_was_set_aside_ends_with_the_engine() {
    let engine = engine(scripted(vec![5], 100), None);
    let aside = Consumer { most: Some(5), ..Consumer::default() };
    submit(&engine, request(&[1], 400), &aside);
    while aside.len() < 5 {
        std::thread::yield_now();
    }
    drop(engine);
    assert!(matches!(aside.end(), Err(EngineError::Stopped)));
}

#[test]
fn deadlines_end_what_waits_what_runs_and_what_was_set_aside() {
    let faults = faults();
    let options = EngineOptions { max_batch: 1, ..EngineOptions::default() };
    let engine = engine_with(FaultyBackend::new(scripted(vec![5], 100), &faults), None, &options);
    let aside = Consumer { most: Some(5), ..Consumer::default() };
    submit(
        &engine,
        Request { deadline: Some(Instant::now() + Duration::from_millis(200)), ..request(&[1], 400) },
        &aside,
    );
    assert!(matches!(aside.end(), Err(EngineError::Deadline { tokens: 1.. })));
    faults.hold.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_secs(1);
    let late = || Request { deadline: Some(deadline), ..request(&[1], 400) };
    let running = engine.submit(late()).expect("accepted");
    let waiting = engine.submit(late()).expect("accepted");
    let in_time = engine.submit(request(&[1], 20)).expect("accepted");
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
    faults.hold.store(false, Ordering::SeqCst);
    let error = collect(running).expect_err("late");
    assert_eq!(error.to_string(), "the request ran into its deadline, with 1 tokens generated");
    assert!(matches!(collect(waiting), Err(EngineError::DeadlineInQueue)));
    assert_eq!(collect(in_time).expect("it has none").tokens.len(), 20);
    pages_are_free(&engine);
}
