//! The thread that owns the backend.
//!
//! Its loop: take commands, let go of cancelled requests, admit waiting ones, and run one step: rows of all live sequences,
//! one pass, and each sequence takes its part of the result. The thread sleeps only when nothing is live.
//!
//! **Pages.** A request is admitted when there are pages for its prompt and its first round, not for all that it may come to say. When the cache is full the
//! youngest live request gives its pages back and waits, first in the queue, to be computed again: to the same bits, so that nobody can tell. The oldest
//! never gives way, and one alone always fits; so all come to their end.
//!
//! **Slow consumers.** A request whose consumer [wants nothing for now](Demand::Later) is set aside: it gives its place and its pages back within a step, and stands
//! first in the queue again when there is demand. Nobody waits for a consumer.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use selfspec_model::{Backend, BackendError, DraftOutput, DraftStopRule, Row, StepOutput, StepReadouts};
use selfspec_speculate::{CommittedToken, CostModel, StepChooser, keep_cheap_drafts};

use crate::error::EngineError;
use crate::events::event::Event;
use crate::events::sink::Demand;
use crate::fault::{Fault, believed_seconds};
use crate::observe::counters::{AtHand, Counters};
use crate::options::EngineOptions;
use crate::panics::panic_message;
use crate::scheduler::prefix_cache::PrefixCache;
use crate::scheduler::running_request::{Job, Live};

/// How often it is looked whether there is demand again for a request that was set aside, when there is nothing else to do.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Something to do with the backend while no sequence is live; it gets the message of a panic that the backend did not survive
/// instead. Answers false if it panicked.
pub(crate) type Exclusive = Box<dyn FnOnce(Result<&mut dyn Backend, String>) -> bool + Send>;

/// Makes the backend anew after a panic.
pub(crate) type Rebuild = Box<dyn Fn() -> Result<Box<dyn Backend>, EngineError> + Send>;

/// What the engine's handles ask of the thread.
pub(crate) enum Command {
    Submit(Box<Job>),
    Exclusive(Exclusive),
}

/// What waits for its turn.
enum Waiting {
    Job(Box<Job>),
    Preempted(Box<Live>),
    Exclusive(Exclusive),
}

impl Waiting {
    fn is_over(&self, now: Instant) -> bool {
        match self {
            Waiting::Job(job) => job.is_over(now),
            Waiting::Preempted(live) => live.is_over(now),
            Waiting::Exclusive(_) => false,
        }
    }
}

impl From<Command> for Waiting {
    fn from(command: Command) -> Self {
        match command {
            Command::Submit(job) => Waiting::Job(job),
            Command::Exclusive(work) => Waiting::Exclusive(work),
        }
    }
}

pub(crate) struct Worker {
    backend: Box<dyn Backend>,
    rebuild: Option<Rebuild>,
    /// Why no step can be run any more.
    broken: Option<String>,
    commands: Receiver<Command>,
    queue: VecDeque<Waiting>, // first come, first served
    live: Vec<Live>,          // in order of admission
    aside: Vec<Live>,         // without pages, since their consumers want nothing for now
    prefixes: PrefixCache,
    max_batch: usize,
    prefill_chunk: usize,
    costs: CostModel,
    fault: Option<Fault>,
    counters: Arc<Counters>,
    rows: Vec<Row>,                 // of one step, each sequence's rows together
    output: StepOutput,             // of one step
    drafted: DraftOutput,           // of one whole draft
    committed: Vec<CommittedToken>, // of one sequence in one step
}

impl Worker {
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        rebuild: Option<Rebuild>,
        commands: Receiver<Command>,
        options: &EngineOptions,
        counters: Arc<Counters>,
    ) -> Self {
        let output = StepOutput::default();
        Worker {
            backend,
            rebuild,
            broken: None,
            commands,
            queue: VecDeque::new(),
            live: Vec::new(),
            aside: Vec::new(),
            prefixes: PrefixCache::new(options.prefix_cache),
            max_batch: options.max_batch.max(1),
            prefill_chunk: options.prefill_chunk.max(1),
            costs: CostModel::new(),
            fault: options.fault,
            counters,
            rows: Vec::new(),
            output,
            drafted: DraftOutput::default(),
            committed: Vec::new(),
        }
    }

    /// Runs until the engine's handle is dropped; requests that have not ended by then fail with [`EngineError::Stopped`].
    pub(crate) fn run(mut self) {
        self.tell();
        while self.receive() {
            self.let_go();
            self.call_back();
            self.admit();
            self.tell();
            self.step();
            self.set_aside();
            self.tell();
        }
        for live in self.live.drain(..) {
            live.end(&mut *self.backend, Event::Failed(EngineError::Stopped));
        }
        for live in self.aside.drain(..) {
            live.end(&mut *self.backend, Event::Failed(EngineError::Stopped));
        }
        for waiting in self.queue.drain(..) {
            match waiting {
                Waiting::Job(job) => job.refuse(EngineError::Stopped),
                Waiting::Preempted(live) => live.end(&mut *self.backend, Event::Failed(EngineError::Stopped)),
                Waiting::Exclusive(_) => {}
            }
        }
    }

    /// Notes what is at hand, for those who watch.
    fn tell(&self) {
        let backend = &*self.backend;
        // A backend that did not survive a panic may panic again.
        let pages = self.broken.is_none().then(|| {
            let (all, positions) = (backend.total_pages(), backend.page_positions());
            let running = self.live.iter().map(|live| live.pages(positions)).sum();
            [all, all - backend.free_pages().min(all), running]
        });
        let waiting = self.queue.iter().filter(|waiting| !matches!(waiting, Waiting::Exclusive(_))).count();
        self.counters.at_hand(AtHand { running: self.live.len(), waiting, pages });
    }

    /// Moves new commands to the queue; waits for one when there is nothing to do. False once the handle is gone.
    fn receive(&mut self) -> bool {
        if self.live.is_empty() && self.queue.is_empty() {
            let next = if self.aside.is_empty() {
                self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.commands.recv_timeout(LOOK_AGAIN)
            };
            match next {
                Ok(command) => self.queue.push_back(command.into()),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.queue.push_back(command.into()),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Ends requests that nobody wants any more or whose deadlines have passed, live and waiting.
    fn let_go(&mut self) {
        let (backend, now) = (&mut *self.backend, Instant::now());
        for live in self.live.extract_if(.., |live| live.is_over(now)) {
            live.give_up(backend);
        }
        for live in self.aside.extract_if(.., |live| live.is_over(now)) {
            live.give_up(backend);
        }
        if self.queue.iter().any(|waiting| waiting.is_over(now)) {
            for waiting in std::mem::take(&mut self.queue) {
                match waiting {
                    Waiting::Job(job) if job.is_over(now) => job.give_up(),
                    Waiting::Preempted(live) if live.is_over(now) => live.give_up(backend),
                    other => self.queue.push_back(other),
                }
            }
        }
    }

    /// Lets the requests go on whose consumers want more again: those that were set aside first stand first in the queue.
    fn call_back(&mut self) {
        let back: Vec<_> = self.aside.extract_if(.., |live| live.demand() == Demand::More).collect();
        for live in back.into_iter().rev() {
            self.queue.push_front(Waiting::Preempted(Box::new(live)));
        }
    }

    /// Takes the pages of live requests whose consumers want nothing for now.
    fn set_aside(&mut self) {
        for mut live in self.live.extract_if(.., |live| live.demand() == Demand::Later) {
            live.set_aside(&mut *self.backend, &mut self.prefixes);
            if live.ended() {
                live.finish(&mut *self.backend, &mut self.prefixes);
            } else {
                self.aside.push(live);
            }
        }
    }

    /// Admits waiting requests in order, as long as there are pages for the next one's prompt and first round. Nobody overtakes: a long request
    /// would wait for ever behind a stream of short ones.
    fn admit(&mut self) {
        while let Some(next) = self.queue.front() {
            let positions = self.backend.page_positions();
            let fits = match next {
                Waiting::Job(_) | Waiting::Preempted(_) if self.broken.is_some() => true,
                Waiting::Job(job) => self.has_room(job.first_pages(positions)),
                Waiting::Preempted(live) => self.has_room(live.next_pages(positions)),
                Waiting::Exclusive(_) => self.live.is_empty(),
            };
            if !fits {
                return;
            }
            match (self.queue.pop_front(), &self.broken) {
                (Some(Waiting::Job(job)), None) => {
                    let (prefixes, beside) = (&mut self.prefixes, self.live.len());
                    let live = Live::admit(*job, &mut *self.backend, prefixes, beside, &self.costs);
                    self.counters.admitted(live.speculates(), live.prompt_tokens(), live.cached_tokens());
                    self.live.push(live);
                }
                (Some(Waiting::Preempted(mut live)), None) => {
                    live.resume(&mut *self.backend, &mut self.prefixes);
                    self.live.push(*live);
                }
                (Some(Waiting::Job(job)), Some(message)) => {
                    job.refuse(EngineError::Panic { message: message.clone() });
                }
                (Some(Waiting::Preempted(live)), Some(message)) => {
                    live.end(&mut *self.backend, Event::Failed(EngineError::Panic { message: message.clone() }));
                }
                (Some(Waiting::Exclusive(work)), None) => {
                    self.prefixes.shrink(&mut *self.backend, 0);
                    if !work(Ok(&mut *self.backend)) {
                        self.restore("exclusive work");
                    }
                }
                (Some(Waiting::Exclusive(work)), Some(message)) => {
                    work(Err(message.clone()));
                }
                (None, _) => return,
            }
        }
    }

    /// Whether a sequence that needs so many pages can be admitted, beside what the live ones need for their next rounds.
    fn has_room(&self, pages: usize) -> bool {
        let positions = self.backend.page_positions();
        let needed: usize = self.live.iter().map(|live| live.next_pages(positions)).sum();
        self.live.len() < self.max_batch && needed + pages <= self.backend.total_pages()
    }

    /// Lets the youngest live requests wait until the rows of the step have pages.
    fn make_room(&mut self) {
        let (positions, total) = (self.backend.page_positions(), self.backend.total_pages());
        let mut needed: usize = self.live.iter().map(|live| live.pages(positions)).sum();
        while needed > total && self.live.len() > 1 {
            let Some(mut live) = self.live.pop() else { return };
            needed -= live.pages(positions);
            self.rows.retain(|row| !live.is(row.seq));
            live.preempt(&mut *self.backend);
            self.counters.preempted();
            self.queue.push_front(Waiting::Preempted(Box::new(live)));
        }
        self.prefixes.shrink(&mut *self.backend, total.saturating_sub(needed));
    }

    /// One step of all live sequences.
    fn step(&mut self) {
        loop {
            self.collect();
            if self.rows.is_empty() {
                return;
            }
            let started = Instant::now();
            let whole_draft = self.live_alone().and_then(Live::draft_stop_rule);
            let step = AssertUnwindSafe(|| match &whole_draft {
                Some(stop) => self.draft(stop),
                None => self.run_step(),
            });
            match catch_unwind(step) {
                Ok(Ok(())) if whole_draft.is_some() => return self.absorb_whole_draft(started.elapsed()),
                Ok(Ok(())) => {
                    let took = started.elapsed();
                    let rows = std::mem::take(&mut self.rows);
                    self.record(&rows, self.output.layer_rows, took);
                    self.rows = rows;
                    return self.absorb();
                }
                Ok(Err(error)) => self.refuse(&error),
                Err(panic) => return self.recover(&panic_message(&*panic)),
            }
        }
    }

    /// The live request, if there is only one.
    fn live_alone(&self) -> Option<&Live> {
        if let [live] = &self.live[..] { Some(live) } else { None }
    }

    /// Runs the rows, and chooses their tokens where the logits are.
    fn run_step(&mut self) -> Result<(), BackendError> {
        let choose = StepChooser::new(&self.rows, self.live.iter().map(Live::sequence));
        let readouts = StepReadouts { choose: Some(&choose), ..StepReadouts::default() };
        self.backend.step_with(&self.rows, &readouts, &mut self.output)
    }

    /// Makes the whole draft that begins with the only row.
    fn draft(&mut self, stop: &DraftStopRule) -> Result<(), BackendError> {
        match (&self.live[..], &self.rows[..]) {
            ([live], [row]) => live.draft(&mut *self.backend, row, stop, &mut self.drafted),
            _ => Ok(()),
        }
    }

    /// Times the rows of a whole draft, each with its share of the time, and gives the draft to its request.
    fn absorb_whole_draft(&mut self, took: Duration) {
        let rows = u32::try_from(self.drafted.rows.max(1)).unwrap_or(u32::MAX);
        for i in 0..self.drafted.rows {
            let row = self.rows.iter().map(|first| Row { pos: first.pos + i, ..first.clone() }).collect::<Vec<_>>();
            self.record(&row, self.drafted.layer_rows / u64::from(rows), took / rows);
        }
        for live in &mut self.live {
            live.absorb_whole_draft(&self.drafted);
        }
        self.let_end();
    }

    /// Records the time of a step for the cost model and the counters.
    fn record(&mut self, rows: &[Row], layer_rows: u64, took: Duration) {
        self.costs.record(rows, believed_seconds(self.fault, rows, took.as_secs_f64()));
        self.counters.step(rows, layer_rows, took);
    }

    /// Asks every live sequence for its rows. Sequences that read their prompts share the chunk equally, and what one leaves the
    /// next may take; each gets a row at least, so that every live sequence goes on in every step.
    fn collect(&mut self) {
        self.rows.clear();
        let mut reading = self.live.iter().filter(|l| l.reads_prompt()).count();
        let mut budget = self.prefill_chunk;
        for live in &mut self.live {
            let before = self.rows.len();
            if live.reads_prompt() {
                live.rows((budget / reading).max(1), &self.costs, &mut self.rows);
                budget = budget.saturating_sub(self.rows.len() - before);
                reading -= 1;
            } else {
                live.rows(1, &self.costs, &mut self.rows);
            }
        }
        if let [live] = &mut self.live[..] {
            live.reserve_whole_draft();
        }
        self.let_end();
        self.make_room();
        keep_cheap_drafts(&mut self.rows);
        for live in &mut self.live {
            live.hold(&self.rows);
        }
    }

    /// Gives every sequence its part of the step's output.
    fn absorb(&mut self) {
        let backend = &mut *self.backend;
        let mut first = 0;
        for live in &mut self.live {
            self.committed.clear();
            let (wanted, before) = (live.wanted(&self.rows), live.tokens());
            live.absorb(backend, &self.output, first, &mut self.committed);
            first += wanted;
            live.count(before, &self.counters);
        }
        self.let_end();
    }

    /// Frees the sequences that have finished or failed, and tells their consumers.
    fn let_end(&mut self) {
        let backend = &mut *self.backend;
        for live in self.live.extract_if(.., |live| live.ended()) {
            self.costs.record_sequence(live.stats().path_drafts().as_ref());
            live.finish(backend, &mut self.prefixes);
        }
    }

    /// The backend refused the step, and has computed nothing: ends the sequences at fault. The others begin their rounds anew, because
    /// a backend may forget what was drafted when it refuses a step. At least one sequence ends, so that this comes to an end.
    fn refuse(&mut self, error: &BackendError) {
        let at_fault = |row: &Row| match error {
            BackendError::BadRow { seq, .. } | BackendError::UnknownSequence(seq) => row.seq == *seq,
            BackendError::UnknownToken { token, .. } => row.token == *token,
            BackendError::BeyondContext { pos, .. } => row.pos == *pos,
            BackendError::KvFull { .. } => false,
        };
        let mut seqs: Vec<_> = self.rows.iter().filter(|row| at_fault(row)).map(|row| row.seq).collect();
        if seqs.is_empty() {
            // Nobody is named: the youngest makes room for those that were there before.
            seqs.extend(self.live.last().and_then(Live::seq));
        }
        let backend = &mut *self.backend;
        for live in &mut self.live {
            if seqs.iter().any(|seq| live.is(*seq)) {
                live.fail(EngineError::Backend(error.clone()));
            } else {
                live.begin_anew(backend);
            }
        }
        self.let_end();
    }

    /// A step panicked: its requests end, their sequences are freed, and the engine goes on with what waits.
    fn recover(&mut self, message: &str) {
        tracing::error!(message, "a step panicked");
        self.counters.panicked();
        for live in self.live.drain(..) {
            let event = Event::Failed(EngineError::Panic { message: message.to_owned() });
            let backend = &mut *self.backend;
            // What is left of the backend may panic again; restore() sees to that.
            let _ = catch_unwind(AssertUnwindSafe(|| live.end(backend, event)));
        }
        self.restore(message);
    }

    /// After a panic, with no sequence live: makes the backend anew, since nobody knows what it was in the midst of. Where that is not
    /// possible it must at least have all its pages back.
    fn restore(&mut self, message: &str) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.prefixes.shrink(&mut *self.backend, 0)));
        self.prefixes.forget();
        self.broken = match &self.rebuild {
            Some(rebuild) => match rebuild() {
                Ok(backend) => {
                    self.backend = backend;
                    None
                }
                Err(error) => Some(format!("{message}; and then: {error}")),
            },
            None => {
                let whole = AssertUnwindSafe(|| self.backend.free_pages() == self.backend.total_pages());
                let whole = catch_unwind(whole).unwrap_or(false);
                (!whole).then(|| message.to_owned())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use selfspec_testkit::fake_target::{FakeOptions, fake_target};

    use super::*;
    use crate::engine::Engine;
    use crate::options::EngineOptions;
    use crate::request::{Prompt, Request};

    #[test]
    fn what_is_live_and_what_waits_ends_as_stopped_when_the_handle_goes() {
        let fake = || Box::new(fake_target(FakeOptions::default()));
        let engine = Engine::with_backend(fake(), None, None, &EngineOptions::default()).expect("a thread");
        let (commands, receiver) = mpsc::channel();
        let options = EngineOptions { max_batch: 1, prefill_chunk: 16, ..EngineOptions::default() };
        let mut worker = Worker::new(fake(), None, receiver, &options, Arc::default());
        let streams: Vec<_> = (0..3)
            .map(|_| {
                let (sink, events) = mpsc::channel();
                let job = engine.prepare(Request::new(Prompt::Tokens(vec![1])), Box::new(sink)).expect("sound");
                commands.send(Command::Submit(Box::new(job))).expect("the worker is there");
                events
            })
            .collect();
        assert!(worker.receive());
        worker.admit();
        worker.step();
        assert_eq!((worker.live.len(), worker.queue.len()), (1, 2));
        drop(commands);
        worker.run();
        for events in streams {
            assert!(matches!(events.iter().last(), Some(Event::Failed(EngineError::Stopped))));
        }
    }
}
