//! Compilations of grammars: a bounded number at a time, on threads of their own; the others wait.
//!
//! Equal grammars compile once, also at the same time, and their results are cached. A waiter that
//! leaves is forgotten; a compilation without waiters is stopped. A thread gives its slot back
//! before it answers.
//!
//! **Slow grammars.** A compilation may use [`Limits::processor_time`] of its own thread, so other
//! work of the machine does not count. Beyond that its waiters are refused and it is stopped. The
//! thread cannot be ended: it keeps its slot until it comes to the next stage of the work. Only
//! sources with expressions that hold at the same time can be slow for long, and these share
//! [`Limits::intersecting`] of the slots. So they never take all slots, and cost that many threads
//! at most.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use selfspec_text::{Grammar, GrammarSource, TextError};

use crate::error::EngineError;
use crate::grammars::cache::{Compiled, GrammarCache};
use crate::grammars::thread_clock::ThreadClock;
use crate::panics::panic_message;

/// Stack of a compiling thread: the compiler calls itself for nested parts and for chains of rules.
const STACK: usize = 64 << 20;
/// How often the processor time of running compilations is read.
const CLOCK_INTERVAL: Duration = Duration::from_millis(50);

/// A compiler of grammars.
pub(crate) trait Compile: Send + Sync {
    /// Builds what all compilations need. Its time does not count.
    fn prepare(&self) -> Result<(), TextError>;

    /// Compiles a grammar; gives up soon after `go_on` is false.
    fn compile(&self, source: &GrammarSource, go_on: &dyn Fn() -> bool) -> Result<Grammar, TextError>;
}

/// What compilations may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Compilations at a time.
    pub(crate) slots: usize,
    /// Of these, sources whose expressions [hold at the same time](GrammarSource::intersects).
    pub(crate) intersecting: usize,
    /// Waiters in all.
    pub(crate) waiters: usize,
    /// Processor time of one compilation.
    pub(crate) processor_time: Duration,
    /// Results that are kept.
    pub(crate) cached: usize,
    /// Bytes of them.
    pub(crate) cached_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            slots: 4,
            intersecting: 2,
            waiters: 1024,
            processor_time: Duration::from_secs(2),
            // An automaton of nested repetitions takes up to 190 MB, and llguidance does not tell:
            // `Grammar::bytes` counts only a part of it.
            cached: 8,
            cached_bytes: 64 << 20,
        }
    }
}

/// Takes the grammar, or the error. Called once, on a thread of the service or by the caller's own.
pub(crate) type OnCompiled = Box<dyn FnOnce(Result<Grammar, EngineError>) + Send>;

/// A request's place among the waiters for a grammar. Dropping it gives the place up: the
/// compilation ends if nobody else waits for it.
#[must_use = "dropping it gives the grammar up"]
pub struct GrammarTicket {
    place: Option<(Arc<Shared>, u64)>,
}

/// Compiles grammars for one vocabulary.
pub(crate) struct GrammarService {
    shared: Arc<Shared>,
}

struct Shared {
    compiler: Arc<dyn Compile>,
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar, // a compilation has begun, or the service is closed
}

struct State {
    cache: GrammarCache,
    queue: VecDeque<Queued>, // first come, first served
    running: Vec<Running>,
    next_waiter: u64,
    watched: bool, // whether the thread that reads the clocks was started
    closed: bool,
}

/// A compilation that waits for a slot.
struct Queued {
    key: Arc<str>,
    source: GrammarSource,
    intersects: bool,
    waiters: Vec<Waiter>,
}

/// A compilation that has a slot.
struct Running {
    key: Arc<str>,
    intersects: bool,
    waiters: Vec<Waiter>,
    clock: Arc<OnceLock<ThreadClock>>,
    stopped: Arc<AtomicBool>, // nobody waits for it any more
}

struct Waiter {
    number: u64,
    answer: OnCompiled,
}

/// Answers that are due once the state is unlocked.
type Answers = Vec<(Waiter, Result<Grammar, EngineError>)>;

impl GrammarService {
    pub(crate) fn new(compiler: Arc<dyn Compile>, limits: Limits) -> Self {
        let state = State {
            cache: GrammarCache::new(limits.cached, limits.cached_bytes),
            queue: VecDeque::new(),
            running: Vec::new(),
            next_waiter: 0,
            watched: false,
            closed: false,
        };
        GrammarService {
            shared: Arc::new(Shared { compiler, limits, state: Mutex::new(state), changed: Condvar::new() }),
        }
    }

    /// Queues a compilation, unless the result is cached.
    ///
    /// # Errors
    /// The source is refused before it is compiled; [`EngineError::Busy`].
    pub(crate) fn submit(&self, source: GrammarSource, answer: OnCompiled) -> Result<GrammarTicket, EngineError> {
        source.check()?;
        let key = key(&source);
        let mut state = self.shared.lock();
        if let Some(result) = state.cache.get(&key) {
            drop(state);
            answer(result.map_err(refused));
            return Ok(GrammarTicket { place: None });
        }
        if state.waiters() >= self.shared.limits.waiters {
            return Err(EngineError::Busy { what: "too many requests wait for their grammars" });
        }
        let number = state.next_waiter;
        state.next_waiter += 1;
        let waiter = Waiter { number, answer };
        match state.waiters_for(&key) {
            Some(waiters) => waiters.push(waiter),
            None => {
                let intersects = source.intersects();
                state.queue.push_back(Queued { key, source, intersects, waiters: vec![waiter] });
            }
        }
        let answers = self.shared.start_queued(&mut state);
        drop(state);
        give(answers);
        Ok(GrammarTicket { place: Some((self.shared.clone(), number)) })
    }
}

impl Drop for GrammarService {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        let mut waiters: Vec<Waiter> = state.queue.drain(..).flat_map(|queued| queued.waiters).collect();
        for running in &mut state.running {
            waiters.append(&mut running.stop());
        }
        drop(state);
        give(waiters.into_iter().map(|waiter| (waiter, Err(EngineError::Stopped))).collect());
    }
}

impl Drop for GrammarTicket {
    fn drop(&mut self) {
        let Some((shared, number)) = self.place.take() else { return };
        let mut state = shared.lock();
        let mut left: Vec<Waiter> = Vec::new(); // dropped when the state is unlocked
        for queued in &mut state.queue {
            left.extend(queued.waiters.extract_if(.., |waiter| waiter.number == number));
        }
        state.queue.retain(|queued| !queued.waiters.is_empty());
        for running in &mut state.running {
            left.extend(running.waiters.extract_if(.., |waiter| waiter.number == number));
            if running.waiters.is_empty() {
                running.stopped.store(true, Ordering::Relaxed);
            }
        }
        drop(state);
    }
}

impl std::fmt::Debug for GrammarTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarTicket").field("waits", &self.place.is_some()).finish()
    }
}

impl State {
    fn waiters(&self) -> usize {
        let queued: usize = self.queue.iter().map(|queued| queued.waiters.len()).sum();
        queued + self.running.iter().map(|running| running.waiters.len()).sum::<usize>()
    }

    /// The waiters of the compilation with this key, if there is one that goes on.
    fn waiters_for(&mut self, key: &str) -> Option<&mut Vec<Waiter>> {
        let running = self.running.iter_mut().find(|running| &*running.key == key && !running.is_stopped());
        let queued = self.queue.iter_mut().find(|queued| &*queued.key == key);
        running.map(|running| &mut running.waiters).or_else(|| queued.map(|queued| &mut queued.waiters))
    }
}

impl Running {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Stops it, and gives its waiters back.
    fn stop(&mut self) -> Vec<Waiter> {
        self.stopped.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.waiters)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives free slots to queued compilations, in order. Refuses those that no slot will come free
    /// for.
    fn start_queued(self: &Arc<Self>, state: &mut State) -> Answers {
        let mut answers = Answers::new();
        loop {
            let intersecting = state.running.iter().filter(|running| running.intersects).count();
            let free = |queued: &Queued| !queued.intersects || intersecting < self.limits.intersecting;
            let next = if state.running.len() < self.limits.slots { state.queue.iter().position(free) } else { None };
            let Some(queued) = next.and_then(|at| state.queue.remove(at)) else { break };
            if let Err((waiters, error)) = self.start(state, queued) {
                let why = error.to_string();
                answers.extend(waiters.into_iter().map(|waiter| (waiter, Err(refused(why.clone())))));
            }
        }
        let slow = state.running.iter().filter(|running| running.intersects && running.is_slow(&self.limits)).count();
        if slow >= self.limits.intersecting {
            let busy = || EngineError::Busy { what: "grammars with patterns that never end take all their compilers" };
            for queued in &mut state.queue {
                if queued.intersects {
                    answers.extend(queued.waiters.drain(..).map(|waiter| (waiter, Err(busy()))));
                }
            }
            state.queue.retain(|queued| !queued.waiters.is_empty());
        }
        answers
    }

    /// Starts a thread for a compilation.
    fn start(self: &Arc<Self>, state: &mut State, queued: Queued) -> Result<(), (Vec<Waiter>, std::io::Error)> {
        let Queued { key, source, intersects, waiters } = queued;
        let (clock, stopped) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("selfspec-grammar".to_owned()).stack_size(STACK);
        let (shared, of_thread, stop) = (self.clone(), clock.clone(), stopped.clone());
        if let Err(error) = thread.spawn(move || shared.compile(&source, &of_thread, &stop)) {
            return Err((waiters, error));
        }
        state.running.push(Running { key, intersects, waiters, clock, stopped });
        if !state.watched {
            let shared = self.clone();
            let watch = std::thread::Builder::new().name("selfspec-grammar-clock".to_owned());
            state.watched = watch.spawn(move || shared.watch_clocks()).is_ok();
        }
        self.changed.notify_all();
        Ok(())
    }

    /// One compilation, on its thread.
    fn compile(self: &Arc<Self>, source: &GrammarSource, clock: &Arc<OnceLock<ThreadClock>>, stopped: &AtomicBool) {
        let work = AssertUnwindSafe(|| {
            self.compiler.prepare()?;
            clock.get_or_init(ThreadClock::of_current_thread);
            self.compiler.compile(source, &|| !stopped.load(Ordering::Relaxed))
        });
        let result: Compiled = match catch_unwind(work) {
            Ok(result) => result.map_err(reason),
            Err(panic) => Err(format!("the compiler panicked: {}", panic_message(&*panic))),
        };
        let mut state = self.lock();
        // The slot is free before anyone is answered.
        let Some(at) = state.running.iter().position(|running| Arc::ptr_eq(&running.clock, clock)) else { return };
        let running = state.running.swap_remove(at);
        if !running.is_stopped() {
            state.cache.insert(running.key, result.clone());
        }
        let mut answers = self.start_queued(&mut state);
        drop(state);
        answers.extend(running.waiters.into_iter().map(|waiter| (waiter, result.clone().map_err(refused))));
        give(answers);
    }

    /// Stops compilations that use too much processor time, until the service is closed.
    fn watch_clocks(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.closed {
            if state.running.iter().all(|running| running.is_slow(&self.limits)) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            (state, _) = self.changed.wait_timeout(state, CLOCK_INTERVAL).unwrap_or_else(PoisonError::into_inner);
            let limits = self.limits;
            let mut slow: Vec<Waiter> = Vec::new();
            for running in state.running.iter_mut().filter(|running| running.is_slow(&limits)) {
                slow.append(&mut running.stop());
            }
            let mut answers = self.start_queued(&mut state);
            drop(state);
            let why =
                format!("it takes more than {} s of processor time to compile", limits.processor_time.as_secs_f64());
            answers.extend(slow.into_iter().map(|waiter| (waiter, Err(refused(why.clone())))));
            give(answers);
            state = self.lock();
        }
    }
}

impl Running {
    /// Whether it has used more processor time than it may.
    fn is_slow(&self, limits: &Limits) -> bool {
        self.clock.get().is_some_and(|clock| clock.used() > limits.processor_time)
    }
}

fn give(answers: Answers) {
    for (waiter, result) in answers {
        (waiter.answer)(result);
    }
}

/// What equal grammars have in common. The order of a schema's properties counts.
fn key(source: &GrammarSource) -> Arc<str> {
    match source {
        GrammarSource::JsonSchema(schema) => format!("schema {schema}").into(),
        GrammarSource::JsonObject => "object".into(),
        GrammarSource::Regex(text) => format!("regex {text}").into(),
        GrammarSource::Lark(text) => format!("lark {text}").into(),
    }
}

fn reason(error: TextError) -> String {
    match error {
        TextError::Grammar { why } => why,
        other => other.to_string(),
    }
}

fn refused(why: String) -> EngineError {
    EngineError::Text(TextError::Grammar { why })
}
