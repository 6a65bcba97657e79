//! The service of grammars over compilers that tests hold, count and let run for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use selfspec_testkit::Vocab;
use selfspec_text::{GgufVocab, Grammar, GrammarCompiler, GrammarSource, TextError, Tokenizer};
use serde_json::json;

use crate::error::EngineError;
use crate::grammars::service::{Compile, GrammarService, GrammarTicket, Limits};

/// A compiler whose compilations wait for the test where it says so.
struct Gated {
    grammar: Grammar,
    compiled: Mutex<HashMap<String, usize>>, // begun, by source
    held: AtomicBool,                        // whether compilations wait
    changed: (Mutex<()>, Condvar),
    ended: AtomicUsize,
}

/// The source that computes until it is released; it does not look whether it is stopped.
const ENDLESS: &str = "endless";

impl Gated {
    fn new() -> Arc<Self> {
        let v = Vocab::byte_level();
        let vocab = GgufVocab {
            model: v.model.to_owned(),
            pre: Some(v.pre.to_owned()),
            tokens: v.tokens,
            token_types: v.types,
            merges: v.merges,
            eos: Some(v.eos),
            ..GgufVocab::default()
        };
        let tokenizer = Arc::new(Tokenizer::from_gguf(vocab).expect("the test kit's vocabulary is sound"));
        let eos = tokenizer.eos_ids().to_vec();
        let compiler = GrammarCompiler::new(tokenizer, usize::MAX, &eos).expect("it has an end");
        let grammar = compiler.compile(&GrammarSource::Regex("a".to_owned())).expect("a sound expression");
        Arc::new(Gated {
            grammar,
            compiled: Mutex::default(),
            held: AtomicBool::new(false),
            changed: Default::default(),
            ended: AtomicUsize::new(0),
        })
    }

    fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        let _guard = self.changed.0.lock().expect("no panic");
        self.changed.1.notify_all();
    }

    fn begun(&self) -> usize {
        self.compiled.lock().expect("no panic").values().sum()
    }

    fn wait_until_begun(&self, n: usize) {
        while self.begun() < n {
            std::thread::yield_now();
        }
    }
}

impl Compile for Gated {
    fn prepare(&self) -> Result<(), TextError> {
        Ok(())
    }

    fn compile(&self, source: &GrammarSource, go_on: &dyn Fn() -> bool) -> Result<Grammar, TextError> {
        let text = format!("{source:?}");
        *self.compiled.lock().expect("no panic").entry(text.clone()).or_default() += 1;
        if text.contains(ENDLESS) {
            while self.held.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        } else {
            let mut guard = self.changed.0.lock().expect("no panic");
            while self.held.load(Ordering::SeqCst) && !text.contains("quick") && go_on() {
                guard = self.changed.1.wait_timeout(guard, Duration::from_millis(5)).expect("no panic").0;
            }
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        if !go_on() {
            return Err(TextError::Grammar { why: "stopped".to_owned() });
        }
        Ok(self.grammar.clone())
    }
}

fn regex(text: impl ToString) -> GrammarSource {
    GrammarSource::Regex(text.to_string())
}

/// A source that may be slow.
fn pattern(text: impl ToString) -> GrammarSource {
    GrammarSource::JsonSchema(json!({ "type": "string", "pattern": text.to_string() }))
}

fn limits() -> Limits {
    Limits { slots: 3, intersecting: 2, ..Limits::default() }
}

type Answer = Receiver<Result<Grammar, EngineError>>;

fn ask(service: &GrammarService, source: GrammarSource) -> Result<(GrammarTicket, Answer), EngineError> {
    let (answer, receiver) = mpsc::channel();
    let ticket = service.submit(source, Box::new(move |result| drop(answer.send(result))))?;
    Ok((ticket, receiver))
}

fn compiled(asked: &(GrammarTicket, Answer)) -> bool {
    asked.1.recv().expect("it is answered").is_ok()
}

#[test]
fn equal_grammars_compile_once_at_the_same_time_and_later() {
    let compiler = Gated::new();
    let service = GrammarService::new(compiler.clone(), limits());
    compiler.hold();
    let asked: Vec<_> = (0..64).map(|i| ask(&service, regex(i % 4)).expect("room")).collect();
    compiler.release();
    assert!(asked.iter().all(compiled));
    assert!((0..8).all(|i| compiled(&ask(&service, regex(i % 4)).expect("room"))));
    assert_eq!(compiler.begun(), 4);
}

/// With one slot and no room for a second waiter, whoever has its answer finds both free.
#[test]
fn a_slot_is_free_before_the_answer() {
    let compiler = Gated::new();
    let service = GrammarService::new(compiler, Limits { slots: 1, waiters: 1, cached: 0, ..limits() });
    for i in 0..500 {
        assert!(compiled(&ask(&service, regex(i % 2)).expect("the one before is answered")));
    }
}

#[test]
fn a_full_queue_is_busy_and_others_get_their_answers() {
    let compiler = Gated::new();
    let service = GrammarService::new(compiler.clone(), Limits { waiters: 5, ..limits() });
    compiler.hold();
    let asked: Vec<_> = (0..5).map(|i| ask(&service, regex(i)).expect("room")).collect();
    let error = ask(&service, regex("one more")).expect_err("full");
    assert_eq!(error.to_string(), "too many requests wait for their grammars: try again later");
    let error = ask(&service, regex("a".repeat(70_000))).expect_err("too large").to_string();
    assert!(error.contains("at most"), "a fault of the source comes first: {error}");
    compiler.release();
    assert!(asked.iter().all(compiled));
    assert!(compiled(&ask(&service, regex("one more")).expect("room again")));
}

#[test]
fn waiters_that_leave_are_forgotten_and_what_nobody_waits_for_ends() {
    let compiler = Gated::new();
    let service = GrammarService::new(compiler.clone(), Limits { slots: 1, waiters: 3, ..limits() });
    compiler.hold();
    let running = ask(&service, regex("running")).expect("room");
    compiler.wait_until_begun(1);
    let same = ask(&service, regex("running")).expect("room");
    let queued = ask(&service, regex("queued")).expect("room");
    assert!(ask(&service, regex("no room")).is_err());
    drop(queued);
    drop(running);
    let last = ask(&service, regex("last")).expect("room");
    assert_eq!(compiler.begun(), 1, "one waiter is left");
    drop(same);
    // Nobody waits for the running one, so it ends although it is held, and the next one begins.
    compiler.wait_until_begun(2);
    compiler.release();
    assert!(compiled(&last));
    assert!(compiled(&ask(&service, regex("running")).expect("room")), "what was stopped is compiled again");
    assert!(!compiler.compiled.lock().expect("no panic").contains_key(&format!("{:?}", regex("queued"))));
}

#[test]
fn compilations_that_never_end_leave_slots_for_others() {
    let compiler = Gated::new();
    let limits = Limits { processor_time: Duration::from_millis(30), ..limits() };
    let service = GrammarService::new(compiler.clone(), limits);
    compiler.hold();
    let endless: Vec<_> = (0..2).map(|i| ask(&service, pattern(format!("{ENDLESS} {i}"))).expect("room")).collect();
    let waiting = ask(&service, pattern("quick, but behind them")).expect("room");
    for (_, answer) in &endless {
        let error = answer.recv().expect("it is answered").expect_err("too slow").to_string();
        assert_eq!(error, "grammar: it takes more than 0.03 s of processor time to compile");
    }
    let error = waiting.1.recv().expect("it is answered").expect_err("no compiler is left");
    assert!(matches!(error, EngineError::Busy { .. }), "{error}");
    let many: Vec<_> = (0..40).map(|i| ask(&service, regex(format!("quick {i}"))).expect("room")).collect();
    assert!(many.iter().all(compiled), "other grammars have a slot");
    compiler.release();
    while compiler.ended.load(Ordering::SeqCst) < 42 {
        std::thread::yield_now();
    }
    // The slot is given back after the work, so the first of these may come a moment too early.
    let again = std::iter::repeat_with(|| compiled(&ask(&service, pattern("quick again")).expect("room")));
    assert!(again.into_iter().any(|compiled| compiled));
}

/// The time of a compilation is that of its own thread: one that waits for the processor is not
/// slow.
#[cfg(target_os = "linux")]
#[test]
fn only_processor_time_makes_a_compilation_slow() {
    let compiler = Gated::new();
    let limits = Limits { processor_time: Duration::from_millis(200), ..limits() };
    let service = GrammarService::new(compiler.clone(), limits);
    compiler.hold();
    let asked = ask(&service, regex("waits")).expect("room");
    compiler.wait_until_begun(1);
    std::thread::sleep(Duration::from_millis(400));
    compiler.release();
    assert!(compiled(&asked));
}

#[test]
fn waiters_are_answered_when_the_service_goes() {
    let compiler = Gated::new();
    let service = GrammarService::new(compiler.clone(), limits());
    compiler.hold();
    let asked: Vec<_> = (0..6).map(|i| ask(&service, regex(i)).expect("room")).collect();
    drop(service);
    for (_, answer) in asked {
        assert!(matches!(answer.recv().expect("it is answered"), Err(EngineError::Stopped)));
    }
    compiler.release();
}
