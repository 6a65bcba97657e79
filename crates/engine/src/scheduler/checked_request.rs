//! A request that passed all checks: what stays the same while it waits and while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use selfspec_speculate::{Sequence, SpecStats};

use crate::error::EngineError;
use crate::events::event::{Event, FinishReason, RequestSummary};
use crate::events::output::Output;
use crate::events::sink::SinkDemand;
use crate::scheduler::page_budget::PageGrant;

/// A checked request.
pub(crate) struct CheckedRequest {
    pub(crate) sequence: Sequence,
    pub(crate) grant: PageGrant,
    pub(crate) output: Output,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) submitted: Instant,
}

impl CheckedRequest {
    /// Pages that its next round needs. The first round needs those of the prompt.
    pub(crate) fn next_pages(&self, page_positions: usize) -> usize {
        self.grant.next_round(self.sequence.tokens().len(), page_positions)
    }

    /// Whether it must end early: it was cancelled, or its deadline has passed.
    pub(crate) fn must_end(&self, now: Instant) -> bool {
        self.is_cancelled() || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether it was cancelled, or its consumer is gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.output.demand() == SinkDemand::Never
    }

    /// Ends it with an error before it was admitted.
    pub(crate) fn refuse(mut self, error: EngineError) {
        self.output.send(Event::Failed(error));
    }

    /// Ends a request that [must end](CheckedRequest::must_end) before it was admitted.
    pub(crate) fn end_early(mut self) {
        if !self.is_cancelled() {
            return self.refuse(EngineError::DeadlineInQueue);
        }
        self.output.send(Event::Done(Box::new(RequestSummary {
            finish_reason: FinishReason::Cancelled,
            stop_string: None,
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
            reasoning_tokens: 0,
            reasoning_bytes: 0,
        })));
    }
}
