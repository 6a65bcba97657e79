//! One request inside the engine: waiting as a [`Job`], then [`Live`], and perhaps waiting again when its pages went to others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use selfspec_model::{
    Backend, BackendError, DraftOutput, DraftRequest, DraftStopRule, Readout, Row, SeqId, StepOutput,
};
use selfspec_speculate::{CommittedToken, CostModel, Sequence, SpecStats};

use crate::error::EngineError;
use crate::events::event::{Event, FinishReason, Gap, Progress, Summary};
use crate::events::output::Output;
use crate::events::sink::Demand;
use crate::observe::counters::Counters;
use crate::panics::panic_message;
use crate::scheduler::page_budget::Grant;
use crate::scheduler::prefix_cache::PrefixCache;

/// A request that waits, checked and ready.
pub(crate) struct Job {
    pub(crate) sequence: Sequence,
    pub(crate) grant: Grant,
    pub(crate) output: Output,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) submitted: Instant,
}

impl Job {
    /// Pages that its prompt and its first round need.
    pub(crate) fn first_pages(&self, page_positions: usize) -> usize {
        self.grant.next_round(self.sequence.tokens().len(), page_positions)
    }

    /// Whether it is to end before it began: nobody wants it any more, or its deadline has passed.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.cancelled() || is_late(self.deadline, now)
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.output.demand() == Demand::Never
    }

    /// Ends it before it began.
    pub(crate) fn refuse(mut self, error: EngineError) {
        self.output.send(Event::Failed(error));
    }

    /// Ends what [is over](Job::is_over).
    pub(crate) fn give_up(mut self) {
        if !self.cancelled() {
            return self.refuse(EngineError::DeadlineInQueue);
        }
        self.output.send(Event::Done(Box::new(Summary {
            finish_reason: FinishReason::Cancelled,
            prompt_tokens: self.sequence.prompt_len(),
            cached_tokens: 0,
            completion_tokens: 0,
            queued_s: self.submitted.elapsed().as_secs_f64(),
            prompt_s: 0.0,
            predicted_s: 0.0,
            gaps: Vec::new(),
            stats: SpecStats::default(),
            trace: Vec::new(),
            token_ids: Vec::new(),
            text: String::new(),
        })));
    }
}

fn is_late(deadline: Option<Instant>, now: Instant) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

/// A sequence of the backend that holds as much of the tokens as an earlier one left, and how many.
fn begin(sequence: &Sequence, backend: &mut dyn Backend, prefixes: &mut PrefixCache) -> (SeqId, usize) {
    let auxiliary = sequence.wants_auxiliary();
    let found = prefixes.fork(backend, sequence.tokens(), auxiliary);
    let (seq, held) = found.unwrap_or_else(|| (backend.create(), 0));
    if !auxiliary {
        backend.drop_auxiliary(seq).expect("the sequence was made just now");
    }
    (seq, held)
}

/// A request whose sequence the backend holds, or held.
pub(crate) struct Live {
    seq: Option<SeqId>, // none while it waits for pages
    sequence: Sequence,
    grant: Grant,
    output: Output,
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    submitted: Instant,
    admitted: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    gaps: Vec<Gap>,
    reach: usize,  // positions that its uncommitted rows reach to
    cached: usize, // tokens of the prompt that it began with
    end: Option<Result<FinishReason, EngineError>>,
}

impl Live {
    /// Gives the job a sequence of the backend.
    pub(crate) fn admit(
        mut job: Job,
        backend: &mut dyn Backend,
        prefixes: &mut PrefixCache,
        beside: usize,
        costs: &CostModel,
    ) -> Live {
        let mut sequence = job.sequence;
        sequence.disable_hopeless_exit_head(beside, costs);
        let (seq, cached) = begin(&sequence, backend, prefixes);
        sequence.restart_as(seq, cached);
        job.output.send(Event::Prompt { tokens: sequence.prompt_len() });
        Live {
            seq: Some(seq),
            sequence,
            grant: job.grant,
            output: job.output,
            cancelled: job.cancelled,
            deadline: job.deadline,
            submitted: job.submitted,
            admitted: Instant::now(),
            first_token: None,
            last_token: None,
            gaps: Vec::new(),
            reach: cached,
            cached,
            end: None,
        }
    }

    /// Gives its pages back. What was committed stays; it is computed again when it is [resumed](Live::resume), to the same bits.
    pub(crate) fn preempt(&mut self, backend: &mut dyn Backend) {
        if let Some(seq) = self.seq.take() {
            backend.free(seq);
        }
        self.sequence.skip_step();
    }

    /// What the consumer wants.
    pub(crate) fn demand(&self) -> Demand {
        self.output.demand()
    }

    /// Gives its pages back because its consumer wants nothing for now. As long as nobody else wants them they are kept for its [return](Live::resume).
    pub(crate) fn set_aside(&mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        self.begin_anew(backend);
        self.sequence.skip_step();
        if self.ended() {
            return;
        }
        if let Some(seq) = self.seq.take() {
            self.leave(seq, backend, prefixes);
        }
    }

    /// Leaves the sequence to those that begin like it, or frees it.
    fn leave(&self, seq: SeqId, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let held = backend.kv_len(seq).unwrap_or(0).min(self.sequence.tokens().len());
        prefixes.keep(backend, seq, &self.sequence.tokens()[..held]);
    }

    /// Gives it a sequence of the backend again.
    pub(crate) fn resume(&mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let (seq, cached) = begin(&self.sequence, backend, prefixes);
        self.seq = Some(seq);
        self.sequence.restart_as(seq, cached);
        self.reach = cached;
    }

    pub(crate) fn is(&self, seq: SeqId) -> bool {
        self.seq == Some(seq)
    }

    pub(crate) fn seq(&self) -> Option<SeqId> {
        self.seq
    }

    /// Pages that its next round needs.
    pub(crate) fn next_pages(&self, page_positions: usize) -> usize {
        self.grant.next_round(self.sequence.tokens().len(), page_positions)
    }

    /// Pages that it holds once the rows that it asked for last are computed.
    pub(crate) fn pages(&self, page_positions: usize) -> usize {
        self.reach.div_ceil(page_positions)
    }

    /// Whether it is to end before its time: nobody wants it any more, or its deadline has passed.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.cancelled() || is_late(self.deadline, now)
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.output.demand() == Demand::Never
    }

    /// Whether the prompt has not been read to its end.
    pub(crate) fn reads_prompt(&self) -> bool {
        self.sequence.prefill_left() > 0
    }

    /// Appends the rows it wants in the next step, at most `prefill` of them from the prompt. None if it has failed.
    pub(crate) fn rows(&mut self, prefill: usize, costs: &CostModel, rows: &mut Vec<Row>) {
        let before = rows.len();
        let asked = catch_unwind(AssertUnwindSafe(|| self.sequence.rows(prefill, costs, rows)));
        let count = rows.len().saturating_sub(before);
        self.reach = rows[before.min(rows.len())..].iter().map(|row| row.pos + 1).max().unwrap_or(self.reach);
        let message = match asked {
            Ok(()) if count > 0 => return,
            // It would never end.
            Ok(()) => "a sequence asked for no rows".to_owned(),
            Err(panic) => panic_message(&*panic),
        };
        rows.truncate(before);
        self.fail(EngineError::Panic { message });
    }

    /// When the draft whose row it asked for ends, if the whole draft can be made at once.
    pub(crate) fn draft_stop_rule(&self) -> Option<DraftStopRule> {
        self.sequence.draft_stop_rule()
    }

    /// Counts the positions of a whole draft as its own, so that their pages are free when it is made.
    pub(crate) fn reserve_whole_draft(&mut self) {
        if let Some(stop) = self.draft_stop_rule() {
            self.reach += stop.most - 1;
        }
    }

    /// The sequence, whose tokens are chosen where their logits are.
    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Makes a whole draft, which begins with `first`.
    pub(crate) fn draft(
        &self,
        backend: &mut dyn Backend,
        first: &Row,
        stop: &DraftStopRule,
        out: &mut DraftOutput,
    ) -> Result<(), BackendError> {
        match self.sequence.row_chooser() {
            Some(choose) => backend.draft(&DraftRequest { first, stop, choose: &choose }, out),
            None => Ok(()),
        }
    }

    /// Takes the draft that was made.
    pub(crate) fn absorb_whole_draft(&mut self, output: &DraftOutput) {
        let absorbed = catch_unwind(AssertUnwindSafe(|| self.sequence.absorb_whole_draft(output)));
        match absorbed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error.into()),
            Err(panic) => self.fail(EngineError::Panic { message: panic_message(&*panic) }),
        }
    }

    /// Waits if it has no rows in the step.
    pub(crate) fn hold(&mut self, rows: &[Row]) {
        if !rows.iter().any(|row| self.is(row.seq)) {
            self.sequence.skip_step();
        }
    }

    /// How many of its rows in the step want logits.
    pub(crate) fn wanted(&self, rows: &[Row]) -> usize {
        rows.iter().filter(|row| self.is(row.seq) && row.readout != Readout::Nothing).count()
    }

    /// Takes the step's result, whose rows of this sequence begin at `first`, and sends the tokens that it committed.
    pub(crate) fn absorb(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<CommittedToken>,
    ) {
        let absorbed = catch_unwind(AssertUnwindSafe(|| self.sequence.absorb(backend, output, first, committed)));
        let fault = match absorbed {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.into()),
            Err(panic) => Some(EngineError::Panic { message: panic_message(&*panic) }),
        };
        let before = self.output.len();
        let now = (!committed.is_empty()).then(Instant::now);
        let last = self.last_token;
        if let Some(now) = now {
            self.first_token.get_or_insert(now);
            self.last_token = Some(now); // before the tokens go out: they tell how far the request has come
        }
        // What a round committed before a fault stands, as it would without speculation, and may end the text before the fault.
        let ending = self.sequence.finish().filter(|_| fault.is_none()).map(FinishReason::from);
        self.end = match (self.output.take(committed, ending, self.progress()), fault) {
            (Some(reason), _) => Some(Ok(reason)),
            (None, Some(error)) => Some(Err(error)),
            (None, None) => None,
        };
        if let (Some(now), Some(last)) = (now, last) {
            let seconds = now.duration_since(last).as_secs_f32();
            self.gaps.push(Gap { seconds, tokens: (self.output.len() - before) as u32 });
        }
    }

    /// Counts what the latest step has given it, which had `before` tokens until then.
    pub(crate) fn count(&mut self, before: usize, counters: &Counters) {
        if let Some(round) = self.sequence.take_round() {
            counters.round(&round);
        }
        let tokens = self.output.len() - before;
        if tokens > 0 {
            let gap = self.gaps.last().filter(|_| before > 0);
            let after = gap.map(|gap| std::time::Duration::from_secs_f32(gap.seconds));
            counters.generated(self.speculates(), tokens, after);
        }
    }

    /// Whether it may draft.
    pub(crate) fn speculates(&self) -> bool {
        self.grant.draft_room > 0
    }

    /// Tokens of its prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.sequence.prompt_len()
    }

    /// Of these, tokens that it began with.
    pub(crate) fn cached_tokens(&self) -> usize {
        self.cached
    }

    /// Drops the drafts of the round under way; what was committed stays.
    pub(crate) fn begin_anew(&mut self, backend: &mut dyn Backend) {
        if let Err(error) = self.sequence.roll_back(backend) {
            self.fail(error.into());
        }
    }

    /// Marks it as failed.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.end = Some(Err(error));
    }

    /// Whether it has finished or failed.
    pub(crate) fn ended(&self) -> bool {
        self.end.is_some()
    }

    /// Tokens generated.
    pub(crate) fn tokens(&self) -> usize {
        self.output.len()
    }

    /// How its drafts fared.
    pub(crate) fn stats(&self) -> &SpecStats {
        self.sequence.stats()
    }

    /// Leaves the sequence to those that begin like it, or frees it, and tells the consumer what it has come to.
    pub(crate) fn finish(mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let event = match self.end.take() {
            Some(Ok(reason)) => {
                let summary = self.summary(reason);
                if let Some(seq) = self.seq.take() {
                    self.leave(seq, backend, prefixes);
                }
                Event::Done(Box::new(summary))
            }
            Some(Err(error)) => Event::Failed(error),
            None => Event::Failed(EngineError::Stopped),
        };
        self.end(backend, event);
    }

    /// Ends what [is over](Live::is_over) and frees the sequence; the consumer gets what was generated.
    pub(crate) fn give_up(mut self, backend: &mut dyn Backend) {
        let event = if self.cancelled() {
            Event::Done(Box::new(self.summary(FinishReason::Cancelled)))
        } else {
            Event::Failed(EngineError::Deadline { tokens: self.tokens() })
        };
        self.end(backend, event);
    }

    /// Frees the sequence and sends its last event.
    pub(crate) fn end(mut self, backend: &mut dyn Backend, event: Event) {
        self.output.send(event);
        if let Some(seq) = self.seq {
            backend.free(seq);
        }
    }

    fn progress(&self) -> Progress {
        let stats = self.sequence.stats();
        let seconds = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64();
        Progress {
            prompt_tokens: self.sequence.prompt_len(),
            cached_tokens: self.cached,
            prompt_s: seconds(self.admitted, self.first_token.unwrap_or_else(Instant::now)),
            predicted_s: self.first_token.zip(self.last_token).map_or(0.0, |(first, last)| seconds(first, last)),
            tokens: self.output.len(),
            rounds: stats.rounds,
            drafted: stats.drafted,
            accepted: stats.accepted,
        }
    }

    fn summary(&mut self, finish_reason: FinishReason) -> Summary {
        let progress = self.progress();
        let (token_ids, text) = self.output.take_all();
        Summary {
            finish_reason,
            prompt_tokens: progress.prompt_tokens,
            cached_tokens: progress.cached_tokens,
            completion_tokens: token_ids.len(),
            queued_s: self.admitted.duration_since(self.submitted).as_secs_f64(),
            prompt_s: progress.prompt_s,
            predicted_s: progress.predicted_s,
            gaps: std::mem::take(&mut self.gaps),
            stats: self.sequence.stats().clone(),
            trace: self.sequence.trace().copied().collect(),
            token_ids,
            text,
        }
    }
}
