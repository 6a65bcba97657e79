//! One step: rows of all running requests, one call of the backend, and the results to the
//! requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use selfspec_model::{BackendError, DraftStopRule, Row, StepReadouts};
use selfspec_speculate::{StepChooser, keep_cheap_drafts};

use crate::error::EngineError;
use crate::fault::believed_seconds;
use crate::panics::panic_message;
use crate::scheduler::engine_thread::EngineThread;
use crate::scheduler::running_request::RunningRequest;

impl EngineThread {
    /// Runs one step of all running requests.
    pub(super) fn step(&mut self) {
        loop {
            self.collect_rows();
            if self.rows.is_empty() {
                return;
            }
            let started = Instant::now();
            let whole_draft = self.alone().and_then(RunningRequest::draft_stop_rule);
            let step = AssertUnwindSafe(|| match &whole_draft {
                Some(stop) => self.run_whole_draft(stop),
                None => self.run_rows(),
            });
            match catch_unwind(step) {
                Ok(Ok(())) if whole_draft.is_some() => return self.absorb_whole_draft(started.elapsed()),
                Ok(Ok(())) => {
                    let took = started.elapsed();
                    self.costs.record(&self.rows, believed_seconds(self.fault, &self.rows, took.as_secs_f64()));
                    self.counters.step(&self.rows, self.output.layer_rows, took);
                    return self.absorb();
                }
                Ok(Err(error)) => self.fail_refused(&error),
                Err(panic) => return self.recover(&panic_message(&*panic)),
            }
        }
    }

    /// The running request, if there is only one.
    fn alone(&self) -> Option<&RunningRequest> {
        if let [request] = &self.running[..] { Some(request) } else { None }
    }

    /// Runs the rows, and chooses their tokens where the logits are.
    fn run_rows(&mut self) -> Result<(), BackendError> {
        let choose = StepChooser::new(&self.rows, self.running.iter().map(RunningRequest::sequence));
        let readouts = StepReadouts { choose: Some(&choose), ..StepReadouts::default() };
        self.backend.step_with(&self.rows, &readouts, &mut self.output)
    }

    /// Makes the whole draft that begins with the only row.
    fn run_whole_draft(&mut self, stop: &DraftStopRule) -> Result<(), BackendError> {
        match (&self.running[..], &self.rows[..]) {
            ([request], [row]) => request.draft(&mut *self.backend, row, stop, &mut self.drafted),
            _ => Ok(()),
        }
    }

    /// Records the rows of a whole draft, each with its share of the time, and gives the draft to
    /// its request.
    fn absorb_whole_draft(&mut self, took: Duration) {
        let rows = u32::try_from(self.drafted.rows.max(1)).unwrap_or(u32::MAX);
        let share = took / rows;
        for _ in 0..self.drafted.rows {
            self.costs.record(&self.rows, believed_seconds(self.fault, &self.rows, share.as_secs_f64()));
            self.counters.step(&self.rows, self.drafted.layer_rows / u64::from(rows), share);
            self.rows.iter_mut().for_each(|row| row.pos += 1);
        }
        for request in &mut self.running {
            request.absorb_whole_draft(&self.drafted);
        }
        self.drop_ended();
    }

    /// Asks every running request for its rows. Requests in prefill share the chunk equally, and
    /// the next one may take what another leaves. Each gets one row at least, so all go on in every
    /// step.
    fn collect_rows(&mut self) {
        self.rows.clear();
        let mut in_prefill = self.running.iter().filter(|request| request.is_in_prefill()).count();
        let mut budget = self.prefill_chunk;
        for request in &mut self.running {
            let before = self.rows.len();
            if request.is_in_prefill() {
                request.push_rows((budget / in_prefill).max(1), &self.costs, &mut self.rows);
                budget = budget.saturating_sub(self.rows.len() - before);
                in_prefill -= 1;
            } else {
                request.push_rows(1, &self.costs, &mut self.rows);
            }
        }
        if let [request] = &mut self.running[..] {
            request.reserve_whole_draft();
        }
        self.drop_ended();
        self.preempt_for_step();
        keep_cheap_drafts(&mut self.rows);
        for request in &mut self.running {
            request.note_step(&self.rows);
        }
    }

    /// Gives every request its part of the step's output.
    fn absorb(&mut self) {
        let backend = &mut *self.backend;
        let mut first = 0;
        for request in &mut self.running {
            self.committed.clear();
            let (readouts, before) = (request.readouts(&self.rows), request.tokens());
            request.absorb(backend, &self.output, first, &mut self.committed);
            first += readouts;
            request.count_step(before, &self.counters);
        }
        self.drop_ended();
    }

    /// Takes requests that have finished or failed out of the batch, and sends their last events.
    fn drop_ended(&mut self) {
        let backend = &mut *self.backend;
        for request in self.running.extract_if(.., |request| request.has_ended()) {
            self.costs.record_sequence(request.stats().path_drafts().as_ref());
            request.finish(backend, &mut self.prefixes);
        }
    }

    /// Ends the requests for which the backend refused the step. It has computed nothing, but it
    /// may have dropped the drafts of all sequences, so the others restart their rounds. At least
    /// one request ends, so the loop of [`EngineThread::step`] ends too.
    fn fail_refused(&mut self, error: &BackendError) {
        let at_fault = |row: &Row| match error {
            BackendError::BadRow { seq, .. } | BackendError::UnknownSequence(seq) => row.seq == *seq,
            BackendError::UnknownToken { token, .. } => row.token == *token,
            BackendError::BeyondContext { pos, .. } => row.pos == *pos,
            BackendError::KvFull { .. } => false,
        };
        let mut seqs: Vec<_> = self.rows.iter().filter(|row| at_fault(row)).map(|row| row.seq).collect();
        if seqs.is_empty() {
            // The error names no row: the youngest request makes room for the others.
            seqs.extend(self.running.last().and_then(RunningRequest::seq));
        }
        let backend = &mut *self.backend;
        for request in &mut self.running {
            if seqs.iter().any(|seq| request.has_seq(*seq)) {
                request.fail(EngineError::Backend(error.clone()));
            } else {
                request.restart_round(backend);
            }
        }
        self.drop_ended();
    }
}
