//! A request that was admitted: its sequence in the backend, and what it has generated.
//!
//! A preempted request has no sequence in the backend. Its committed tokens stay, and it computes
//! them again, to the same bits, when it is resumed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use selfspec_model::{
    Backend, BackendError, DraftOutput, DraftRequest, DraftStopRule, Readout, Row, SeqId, StepOutput,
};
use selfspec_speculate::{CommittedToken, CostModel, Sequence, SpecStats};

use crate::error::EngineError;
use crate::events::event::{Event, FinishReason, Progress, RequestSummary, TokenGap};
use crate::events::sink::SinkDemand;
use crate::observe::counters::Counters;
use crate::panics::panic_message;
use crate::scheduler::checked_request::CheckedRequest;
use crate::scheduler::prefix_cache::PrefixCache;

/// Makes a sequence in the backend, as a fork of a cached prefix where there is one. Returns it and
/// the tokens that it holds.
fn create_sequence(sequence: &Sequence, backend: &mut dyn Backend, prefixes: &mut PrefixCache) -> (SeqId, usize) {
    let auxiliary = sequence.wants_auxiliary();
    let found = prefixes.fork(backend, sequence.tokens(), auxiliary);
    let (seq, held) = found.unwrap_or_else(|| (backend.create(), 0));
    if !auxiliary {
        backend.drop_auxiliary(seq).expect("the sequence was made just now");
    }
    (seq, held)
}

/// A request that was admitted.
pub(crate) struct RunningRequest {
    request: CheckedRequest,
    seq: Option<SeqId>, // none while it is preempted or paused
    admitted: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    gaps: Vec<TokenGap>,
    reach: usize,  // one past the last position of its rows in the step
    cached: usize, // prompt tokens whose KV was there at admission
    end: Option<Result<FinishReason, EngineError>>,
}

impl RunningRequest {
    /// Gives the request a sequence of the backend. `beside`: requests that run already.
    pub(crate) fn admit(
        mut request: CheckedRequest,
        backend: &mut dyn Backend,
        prefixes: &mut PrefixCache,
        beside: usize,
        costs: &CostModel,
    ) -> Self {
        let sequence = &mut request.sequence;
        sequence.disable_hopeless_exit_head(beside, costs);
        let (seq, cached) = create_sequence(sequence, backend, prefixes);
        sequence.restart_as(seq, cached);
        request.output.send(Event::Prompt { tokens: request.sequence.prompt_len() });
        RunningRequest {
            request,
            seq: Some(seq),
            admitted: Instant::now(),
            first_token: None,
            last_token: None,
            gaps: Vec::new(),
            reach: cached,
            cached,
            end: None,
        }
    }

    /// Frees its sequence, so that others get the pages. See [`RunningRequest::resume`].
    pub(crate) fn preempt(&mut self, backend: &mut dyn Backend) {
        if let Some(seq) = self.seq.take() {
            backend.free(seq);
        }
        self.request.sequence.skip_step();
    }

    /// The demand of its consumer.
    pub(crate) fn demand(&self) -> SinkDemand {
        self.request.output.demand()
    }

    /// Gives its pages back because its consumer takes nothing for now. The prefix cache keeps them
    /// until others need them.
    pub(crate) fn pause(&mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        self.restart_round(backend);
        self.request.sequence.skip_step();
        if self.has_ended() {
            return;
        }
        if let Some(seq) = self.seq.take() {
            self.keep_prefix(seq, backend, prefixes);
        }
    }

    /// Gives the sequence to the prefix cache, which keeps or frees it.
    fn keep_prefix(&self, seq: SeqId, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let held = backend.kv_len(seq).unwrap_or(0).min(self.request.sequence.tokens().len());
        prefixes.keep(backend, seq, &self.request.sequence.tokens()[..held]);
    }

    /// Gives a preempted or paused request a sequence of the backend again.
    pub(crate) fn resume(&mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let (seq, cached) = create_sequence(&self.request.sequence, backend, prefixes);
        self.seq = Some(seq);
        self.request.sequence.restart_as(seq, cached);
        self.reach = cached;
    }

    /// Whether its sequence is this one.
    pub(crate) fn has_seq(&self, seq: SeqId) -> bool {
        self.seq == Some(seq)
    }

    /// Its sequence in the backend.
    pub(crate) fn seq(&self) -> Option<SeqId> {
        self.seq
    }

    /// Pages that its next round needs.
    pub(crate) fn next_pages(&self, page_positions: usize) -> usize {
        self.request.grant.next_round(self.request.sequence.tokens().len(), page_positions)
    }

    /// Pages that it holds once its rows of the step are computed.
    pub(crate) fn step_pages(&self, page_positions: usize) -> usize {
        self.reach.div_ceil(page_positions)
    }

    /// Whether it must end early: it was cancelled, or its deadline has passed.
    pub(crate) fn must_end(&self, now: Instant) -> bool {
        self.request.must_end(now)
    }

    /// Whether rows of its prompt are left.
    pub(crate) fn is_in_prefill(&self) -> bool {
        self.request.sequence.prefill_left() > 0
    }

    /// Appends its rows for the next step, at most `prefill` of them from the prompt. Appends none
    /// if it has failed.
    pub(crate) fn push_rows(&mut self, prefill: usize, costs: &CostModel, rows: &mut Vec<Row>) {
        let before = rows.len();
        let asked = catch_unwind(AssertUnwindSafe(|| self.request.sequence.rows(prefill, costs, rows)));
        let count = rows.len().saturating_sub(before);
        self.reach = rows[before.min(rows.len())..].iter().map(|row| row.pos + 1).max().unwrap_or(self.reach);
        let message = match asked {
            Ok(()) if count > 0 => return,
            // Without rows it would never end.
            Ok(()) => "a sequence asked for no rows".to_owned(),
            Err(panic) => panic_message(&*panic),
        };
        rows.truncate(before);
        self.fail(EngineError::Panic { message });
    }

    /// The stop rule of the draft whose row it asked for, if the whole draft can be one call.
    pub(crate) fn draft_stop_rule(&self) -> Option<DraftStopRule> {
        self.request.sequence.draft_stop_rule()
    }

    /// Counts the positions of a whole draft as its own, so that their pages are free when it is
    /// made.
    pub(crate) fn reserve_whole_draft(&mut self) {
        if let Some(stop) = self.draft_stop_rule() {
            self.reach += stop.most - 1;
        }
    }

    /// The sequence, whose tokens are chosen where their logits are.
    pub(crate) fn sequence(&self) -> &Sequence {
        &self.request.sequence
    }

    /// Makes a whole draft, which begins with `first`.
    pub(crate) fn draft(
        &self,
        backend: &mut dyn Backend,
        first: &Row,
        stop: &DraftStopRule,
        out: &mut DraftOutput,
    ) -> Result<(), BackendError> {
        match self.request.sequence.row_chooser() {
            Some(choose) => backend.draft(&DraftRequest { first, stop, choose: &choose }, out),
            None => Ok(()),
        }
    }

    /// Takes the whole draft.
    pub(crate) fn absorb_whole_draft(&mut self, output: &DraftOutput) {
        let absorbed = catch_unwind(AssertUnwindSafe(|| self.request.sequence.absorb_whole_draft(output)));
        match absorbed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error.into()),
            Err(panic) => self.fail(EngineError::Panic { message: panic_message(&*panic) }),
        }
    }

    /// Tells its sequence if it has no rows in the step.
    pub(crate) fn note_step(&mut self, rows: &[Row]) {
        if !rows.iter().any(|row| self.has_seq(row.seq)) {
            self.request.sequence.skip_step();
        }
    }

    /// Number of its rows in the step that have a readout.
    pub(crate) fn readouts(&self, rows: &[Row]) -> usize {
        rows.iter().filter(|row| self.has_seq(row.seq) && row.readout != Readout::Nothing).count()
    }

    /// Takes the step's result, in which its readouts begin at `first`, and sends the committed
    /// tokens.
    pub(crate) fn absorb(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<CommittedToken>,
    ) {
        let absorbed =
            catch_unwind(AssertUnwindSafe(|| self.request.sequence.absorb(backend, output, first, committed)));
        let fault = match absorbed {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.into()),
            Err(panic) => Some(EngineError::Panic { message: panic_message(&*panic) }),
        };
        let before = self.request.output.len();
        let now = (!committed.is_empty()).then(Instant::now);
        let last = self.last_token;
        if let Some(now) = now {
            self.first_token.get_or_insert(now);
            self.last_token = Some(now); // before the tokens go out, since they carry the progress
        }
        // Tokens committed before a fault stand, as they would without speculation. They may end
        // the text before the fault.
        let ending = self.request.sequence.finish().filter(|_| fault.is_none()).map(FinishReason::from);
        self.end = match (self.request.output.take(committed, ending, self.progress()), fault) {
            (Some(reason), _) => Some(Ok(reason)),
            (None, Some(error)) => Some(Err(error)),
            (None, None) => None,
        };
        if let (Some(now), Some(last)) = (now, last) {
            let seconds = now.duration_since(last).as_secs_f32();
            self.gaps.push(TokenGap { seconds, tokens: (self.request.output.len() - before) as u32 });
        }
    }

    /// Counts the results of the latest step; it had `before` tokens until then.
    pub(crate) fn count_step(&mut self, before: usize, counters: &Counters) {
        if let Some(round) = self.request.sequence.take_round() {
            counters.round(&round);
        }
        let tokens = self.request.output.len() - before;
        if tokens > 0 {
            let gap = self.gaps.last().filter(|_| before > 0);
            let after = gap.map(|gap| std::time::Duration::from_secs_f32(gap.seconds));
            counters.generated(self.speculates(), tokens, after);
        }
    }

    /// Whether it may draft.
    pub(crate) fn speculates(&self) -> bool {
        self.request.grant.draft_room > 0
    }

    /// Tokens of its prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.request.sequence.prompt_len()
    }

    /// Of these, tokens whose KV was there at admission.
    pub(crate) fn cached_tokens(&self) -> usize {
        self.cached
    }

    /// Rolls back the drafts of the round under way. Committed tokens stay.
    pub(crate) fn restart_round(&mut self, backend: &mut dyn Backend) {
        if let Err(error) = self.request.sequence.roll_back(backend) {
            self.fail(error.into());
        }
    }

    /// Marks it as failed.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.end = Some(Err(error));
    }

    /// Whether it has finished or failed.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Tokens generated.
    pub(crate) fn tokens(&self) -> usize {
        self.request.output.len()
    }

    /// Its speculation statistics.
    pub(crate) fn stats(&self) -> &SpecStats {
        self.request.sequence.stats()
    }

    /// Ends a request that [has ended](RunningRequest::has_ended): sends its last event, and gives
    /// its sequence to the prefix cache.
    pub(crate) fn finish(mut self, backend: &mut dyn Backend, prefixes: &mut PrefixCache) {
        let event = match self.end.take() {
            Some(Ok(reason)) => {
                let summary = self.summary(reason);
                if let Some(seq) = self.seq.take() {
                    self.keep_prefix(seq, backend, prefixes);
                }
                Event::Done(Box::new(summary))
            }
            Some(Err(error)) => Event::Failed(error),
            None => Event::Failed(EngineError::Stopped),
        };
        self.close(backend, event);
    }

    /// Ends a request that [must end](RunningRequest::must_end). The consumer keeps what was
    /// generated.
    pub(crate) fn end_early(mut self, backend: &mut dyn Backend) {
        let event = if self.request.is_cancelled() {
            Event::Done(Box::new(self.summary(FinishReason::Cancelled)))
        } else {
            Event::Failed(EngineError::Deadline { tokens: self.tokens() })
        };
        self.close(backend, event);
    }

    /// Sends the last event and frees the sequence.
    pub(crate) fn close(mut self, backend: &mut dyn Backend, event: Event) {
        self.request.output.send(event);
        if let Some(seq) = self.seq {
            backend.free(seq);
        }
    }

    fn progress(&self) -> Progress {
        let stats = self.request.sequence.stats();
        let seconds = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64();
        Progress {
            prompt_tokens: self.request.sequence.prompt_len(),
            cached_tokens: self.cached,
            prompt_s: seconds(self.admitted, self.first_token.unwrap_or_else(Instant::now)),
            predicted_s: self.first_token.zip(self.last_token).map_or(0.0, |(first, last)| seconds(first, last)),
            tokens: self.request.output.len(),
            rounds: stats.rounds,
            drafted: stats.drafted,
            accepted: stats.accepted,
        }
    }

    fn summary(&mut self, finish_reason: FinishReason) -> RequestSummary {
        let progress = self.progress();
        let (reasoning_tokens, reasoning_bytes) = self.request.output.reasoning();
        let (token_ids, text) = self.request.output.take_all();
        RequestSummary {
            finish_reason,
            stop_string: self.request.output.stop_string(),
            prompt_tokens: progress.prompt_tokens,
            cached_tokens: progress.cached_tokens,
            completion_tokens: token_ids.len(),
            queued_s: self.admitted.duration_since(self.request.submitted).as_secs_f64(),
            prompt_s: progress.prompt_s,
            predicted_s: progress.predicted_s,
            gaps: std::mem::take(&mut self.gaps),
            stats: self.request.sequence.stats().clone(),
            trace: self.request.sequence.trace().copied().collect(),
            token_ids,
            text,
            reasoning_tokens,
            reasoning_bytes,
        }
    }
}
