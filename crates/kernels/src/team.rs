//! The worker team: persistent threads that share the parts of one job at a time.
//!
//! A job is published in one atomic word, (epoch, parts left). A thread claims a part by lowering that word, so a claim
//! made for a job that is over cannot succeed: the epoch has moved on. Parts go to whoever is free; with another process
//! on a core, the threads that run take over the parts of the one that does not. Results must not depend on who runs what,
//! and do not, as a part writes its own output only.
//!
//! Idle workers spin for a few microseconds, then yield, then sleep. The caller, when it waits for the last parts, does the
//! same. So a busy core costs its share of time and no more.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Low bits of the state: parts that nobody has claimed. The bits above count jobs.
const PARTS_BITS: u32 = 24;
const PARTS_MASK: u64 = (1 << PARTS_BITS) - 1;

/// Turns of the busy loop before yielding: a few microseconds.
const SPINS: u32 = 150;
/// Yields before sleeping: some 100 microseconds on an idle machine. Longer than the gaps between the jobs of one pass.
const YIELDS: u32 = 200;

thread_local! {
    /// Whether this thread is inside a part. A job within a job runs on the spot.
    static IN_PART: Cell<bool> = const { Cell::new(false) };
}

/// A job on its caller's stack.
struct Job<'a> {
    parts: usize,
    f: &'a (dyn Fn(usize) + Sync),
}

struct Shared {
    /// `epoch << PARTS_BITS | parts left`.
    state: AtomicU64,
    /// The job of the present epoch. Valid for a thread that has claimed one of its parts and not yet reported it.
    job: AtomicPtr<Job<'static>>,
    /// Parts that have not been reported as finished.
    pending: AtomicUsize,
    /// Workers that sleep or are about to.
    sleeping: AtomicUsize,
    /// Whether the caller sleeps or is about to.
    caller_waits: AtomicBool,
    closing: AtomicBool,
    lock: Mutex<()>,
    work_came: Condvar,
    work_done: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A team of threads. The thread that calls [`Team::run`] is one of them.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time, whoever calls.
    turn: Mutex<()>,
}

fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// A team of `threads` threads, the caller included; 0 counts as 1. Where the system refuses a thread, the team is smaller.
    pub fn new(threads: usize) -> Team {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            pending: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            caller_waits: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            lock: Mutex::new(()),
            work_came: Condvar::new(),
            work_done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut workers = Vec::new();
        for i in 1..threads {
            let shared = Arc::clone(&shared);
            match std::thread::Builder::new().name(format!("selfspec-{i}")).spawn(move || shared.serve()) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Team { shared, workers, turn: Mutex::new(()) }
    }

    /// Threads of the team, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(0)` to `f(parts - 1)`, each once, on the threads of the team, and returns when all have returned.
    /// A call from inside a part runs its parts on the spot, one after the other.
    ///
    /// # Panics
    /// If a part panics, with its message, after all parts have ended. The team stays usable.
    pub fn run(&self, parts: usize, f: &(dyn Fn(usize) + Sync)) {
        if parts <= 1 || self.workers.is_empty() || IN_PART.get() {
            for part in 0..parts {
                f(part);
            }
            return;
        }
        let _turn = relock(&self.turn);
        let mut first = 0;
        while first < parts {
            let some = (parts - first).min(PARTS_MASK as usize);
            self.run_some(some, &|part| f(first + part));
            first += some;
        }
    }

    fn run_some(&self, parts: usize, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let job = Job { parts, f };
        // The lifetime ends here as far as the compiler knows; `finish` below returns only when no thread uses the job.
        shared.job.store((&raw const job).cast_mut().cast(), Ordering::Relaxed);
        shared.pending.store(parts, Ordering::Relaxed);
        let epoch = (shared.state.load(Ordering::Relaxed) >> PARTS_BITS).wrapping_add(1);
        // SeqCst with the load of `sleeping`: either we see the sleeper, or it sees the job.
        shared.state.store(epoch << PARTS_BITS | parts as u64, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            let _held = relock(&shared.lock);
            shared.work_came.notify_all();
        }
        shared.work();
        shared.finish();
        if let Some(payload) = relock(&shared.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Cuts `data` into chunks of `chunk` elements, the last one shorter if need be, and calls `f(index, chunk)` for each on
    /// the threads of the team.
    ///
    /// # Panics
    /// If `chunk` is 0, or if a part panics.
    pub fn chunks_mut<T: Send>(&self, data: &mut [T], chunk: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        assert!(chunk > 0, "chunks have at least one element");
        let len = data.len();
        let base = SendPtr(data.as_mut_ptr());
        self.run(len.div_ceil(chunk), &|i| {
            let from = i * chunk;
            let to = len.min(from + chunk);
            // SAFETY: from < to <= len, each part has its own index and so its own range, and `data` is borrowed until `run` returns.
            let part = unsafe { std::slice::from_raw_parts_mut(base.get().add(from), to - from) };
            f(i, part);
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        {
            let _held = relock(&self.shared.lock);
            self.shared.work_came.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker ends with `serve`, which catches the panics of parts.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish()
    }
}

impl Shared {
    /// A worker's life.
    fn serve(&self) {
        let mut idle = 0;
        while !self.closing.load(Ordering::Relaxed) {
            if self.work() {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle <= SPINS {
                std::hint::spin_loop();
            } else if idle <= SPINS + YIELDS {
                std::thread::yield_now();
            } else {
                self.sleep();
                idle = 0;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.state.load(Ordering::SeqCst) & PARTS_MASK != 0
    }

    /// Sleeps until a job comes or the team closes.
    fn sleep(&self) {
        let mut held = relock(&self.lock);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while !self.has_work() && !self.closing.load(Ordering::SeqCst) {
            held = self.work_came.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims and runs parts of the present job until none is left. Whether there was any.
    fn work(&self) -> bool {
        let mut done = 0;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & PARTS_MASK == 0 {
                break;
            }
            let job = self.job.load(Ordering::Relaxed);
            if self.state.compare_exchange_weak(state, state - 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: the exchange succeeded, so the epoch whose job we loaded still had an unclaimed part, now ours. Its caller
            // waits in `finish` until we report it, so the job is alive.
            let job = unsafe { &*job };
            let part = job.parts - (state & PARTS_MASK) as usize;
            IN_PART.set(true);
            let result = catch_unwind(AssertUnwindSafe(|| (job.f)(part)));
            IN_PART.set(false);
            if let Err(payload) = result {
                relock(&self.panic).get_or_insert(payload);
            }
            done += 1;
        }
        if done > 0
            && self.pending.fetch_sub(done, Ordering::SeqCst) == done
            && self.caller_waits.load(Ordering::SeqCst)
        {
            let _held = relock(&self.lock);
            self.work_done.notify_all();
        }
        done > 0
    }

    /// Waits until all parts of the job have been reported.
    fn finish(&self) {
        for turn in 0..SPINS + YIELDS {
            if self.pending.load(Ordering::Acquire) == 0 {
                return;
            }
            if turn < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let mut held = relock(&self.lock);
        self.caller_waits.store(true, Ordering::SeqCst);
        while self.pending.load(Ordering::SeqCst) != 0 {
            held = self.work_done.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }
}

/// A pointer that parts of a job share, each for its own range.
pub(crate) struct SendPtr<T>(pub(crate) *mut T);

impl<T> SendPtr<T> {
    /// The pointer. A method, so that closures capture the wrapper and not the bare pointer in it.
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: the pointer alone does nothing; whoever reads or writes through it says why that is sound.
unsafe impl<T: Send> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SendPtr<T> {}
