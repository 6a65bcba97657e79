//! [`Team`]: persistent threads that share the parts of one job at a time.
//!
//! Each thread has a share of a job's parts, a run of neighbours that it takes from the front. So
//! one thread reads adjacent memory in order, and uses its own prefetches. A thread that has
//! finished its share takes parts from the back of others'. So when another process occupies a
//! core, the running threads take over the parts of the one that waits. A part writes only its own
//! output, so results do not depend on which thread runs it.
//!
//! A share is one atomic word, (epoch, first part left, end). A thread claims a part by changing
//! that word. A claim for a finished job cannot succeed: the epoch has changed.
//!
//! Idle workers spin for a few microseconds, then yield, then sleep. The caller does the same while
//! it waits for the last parts. So a busy core costs its share of time and no more.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::team::send_ptr::SendPtr;

/// Most parts of a job. More parts run as several jobs.
const MOST_PARTS: usize = u16::MAX as usize;

/// Turns of the busy loop before yielding: a few microseconds.
const SPINS: u32 = 150;
/// Yields before sleeping: some 100 microseconds on an idle machine. Longer than the gaps between
/// the jobs of one pass.
const YIELDS: u32 = 200;

thread_local! {
    /// Whether this thread is running a part. A job within a part runs on the same thread.
    static IN_PART: Cell<bool> = const { Cell::new(false) };
}

/// A job, on its caller's stack.
struct TeamJob<'a> {
    parts: usize,
    f: &'a (dyn Fn(usize) + Sync),
}

/// The unclaimed parts of one thread's share of a job. Each share has its own cache line.
#[repr(align(64))]
struct Share(AtomicU64); // epoch << 32 | first << 16 | end, counted from the share's first part

impl Share {
    fn set(&self, epoch: u32, parts: usize) {
        self.0.store(u64::from(epoch) << 32 | parts as u64, Ordering::Release);
    }
}

struct Shared {
    shares: Box<[Share]>, // (thread); the caller's first
    /// Number of the current job. It changes once all shares of the job are set.
    epoch: AtomicU32,
    /// The job of the current epoch. Valid for a thread that has claimed one of its parts and not
    /// yet reported it.
    job: AtomicPtr<TeamJob<'static>>,
    /// Parts that no thread has reported as finished.
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
    /// Held by the caller of the running job: one job runs at a time.
    turn: Mutex<()>,
}

fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// A team of `threads` threads, including the caller; 0 counts as 1. If the system refuses a
    /// thread, the team is smaller.
    pub fn new(threads: usize) -> Team {
        let shared = Arc::new(Shared {
            shares: (0..threads.max(1)).map(|_| Share(AtomicU64::new(0))).collect(),
            epoch: AtomicU32::new(0),
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
            match std::thread::Builder::new().name(format!("selfspec-{i}")).spawn(move || shared.serve(i)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        Team { shared, workers, turn: Mutex::new(()) }
    }

    /// Threads of the team, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(0)` to `f(parts - 1)`, each once, on the threads of the team, and returns when all
    /// have returned.
    ///
    /// A call from inside a part runs its parts on the same thread, one after the other.
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
            let count = (parts - first).min(MOST_PARTS);
            self.run_job(count, &|part| f(first + part));
            first += count;
        }
    }

    fn run_job(&self, parts: usize, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let job = TeamJob { parts, f };
        // This erases the lifetime. It is sound because `finish` below returns only when no thread
        // uses the job.
        shared.job.store((&raw const job).cast_mut().cast(), Ordering::Relaxed);
        shared.pending.store(parts, Ordering::Relaxed);
        let epoch = shared.epoch.load(Ordering::Relaxed).wrapping_add(1);
        let threads = shared.shares.len();
        for (i, share) in shared.shares.iter().enumerate() {
            share.set(epoch, parts * (i + 1) / threads - parts * i / threads);
        }
        // SeqCst with the load of `sleeping`: either we see the sleeper, or it sees the job.
        shared.epoch.store(epoch, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            let _held = relock(&shared.lock);
            shared.work_came.notify_all();
        }
        shared.work(0);
        shared.finish();
        if let Some(payload) = relock(&shared.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Cuts `data` into chunks of `chunk` elements, of which the last may be shorter, and calls
    /// `f(index, chunk)` for each on the threads of the team.
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
            // SAFETY: from < to <= len, each part has its own index and so its own range, and
            // `data` is borrowed until `run` returns.
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
    /// The loop of worker `me`.
    fn serve(&self, me: usize) {
        let (mut idle, mut seen) = (0, 0);
        while !self.closing.load(Ordering::Relaxed) {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                seen = epoch;
                self.work(me);
                idle = 0;
                continue;
            }
            idle += 1;
            if idle <= SPINS {
                std::hint::spin_loop();
            } else if idle <= SPINS + YIELDS {
                std::thread::yield_now();
            } else {
                self.sleep(seen);
                idle = 0;
            }
        }
    }

    /// Sleeps until a job follows that of epoch `seen`, or the team closes.
    fn sleep(&self, seen: u32) {
        let mut held = relock(&self.lock);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while self.epoch.load(Ordering::SeqCst) == seen && !self.closing.load(Ordering::SeqCst) {
            held = self.work_came.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims and runs parts of the current job until none is left: those of thread `me`'s own
    /// share, then of the others'.
    fn work(&self, me: usize) {
        let threads = self.shares.len();
        let mut done = 0;
        for share in (me..threads).chain(0..me) {
            while self.claim_and_run(share, share == me) {
                done += 1;
            }
        }
        if done > 0
            && self.pending.fetch_sub(done, Ordering::SeqCst) == done
            && self.caller_waits.load(Ordering::SeqCst)
        {
            let _held = relock(&self.lock);
            self.work_done.notify_all();
        }
    }

    /// Claims one part of a share, its first or its last, and runs it. False if none was left.
    fn claim_and_run(&self, share: usize, front: bool) -> bool {
        let word = &self.shares[share].0;
        let (job, at) = loop {
            let state = word.load(Ordering::Acquire);
            let (first, end) = (state >> 16 & 0xffff, state & 0xffff);
            if first == end {
                return false;
            }
            let job = self.job.load(Ordering::Relaxed);
            let (claimed, next) = if front { (first, state + (1 << 16)) } else { (end - 1, state - 1) };
            if word.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break (job, claimed as usize);
            }
        };
        // SAFETY: the exchange succeeded, so the epoch whose job we loaded still had an unclaimed
        // part, now ours. Its caller waits in `finish` until we report it, so the job is alive.
        let job = unsafe { &*job };
        let part = job.parts * share / self.shares.len() + at;
        IN_PART.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| (job.f)(part)));
        IN_PART.set(false);
        if let Err(payload) = result {
            relock(&self.panic).get_or_insert(payload);
        }
        true
    }

    /// Waits until every part of the job is reported.
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
