//! The rounds of a sequence: the rows that it wants in each step, and what their logits decide.
//!
//! [`Sequence::rows`] asks for rows, [`Sequence::absorb`] takes their logits. The caller owns the
//! model and the clock.

use std::panic::resume_unwind;
use std::sync::PoisonError;

use selfspec_model::{
    Backend, DraftOutput, DraftStopRule, Enter, NoChoice, Readout, Row, StepOutput, TokenId, TokenLogprob,
};

use crate::draft::params::MAX_DRAFT;
use crate::error::SequenceError;
use crate::policy::choice::RoundResult;
use crate::policy::cost::model::CostModel;
use crate::policy::round_reason::RoundReason;
use crate::round::draft_verify_accept::{AcceptedDrafts, Round, VerifyReadout, accept_drafts};
use crate::sample::sampler::DraftToken;
use crate::sample::sequence_sampler::TokenChoiceError;
use crate::sequence::state::{CommittedToken, RowsInStep, Sequence};
use crate::stats::RoundTrace;

impl Sequence {
    /// Appends the rows that the sequence wants in the next step, in ascending position: a chunk of
    /// the prompt of at most `prefill_budget` rows, one draft row, or the rows of a verification.
    /// None when it is over. A second call without a step between gives the same rows.
    pub fn rows(&mut self, prefill_budget: usize, costs: &CostModel, out: &mut Vec<Row>) {
        self.in_step = RowsInStep::None;
        self.proposed.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        if self.finish.is_some() || self.failed {
            return;
        }
        let pending = self.tokens.len() - 1;
        if self.kv_len < pending {
            let end = self.kv_len.saturating_add(prefill_budget).min(pending + 1);
            if end > self.kv_len {
                out.extend((self.kv_len..end).map(|pos| self.prefill_row(pos)));
                self.in_step = RowsInStep::Prefill(end);
            }
            return;
        }
        if self.round.is_none() {
            self.round = Some(self.begin_round(costs));
        }
        let Some(round) = &mut self.round else { return };
        let waiting = costs.waiting_per_drafting();
        round.waiting.add(round.draft_rows, waiting);
        // Towards the end of a round fewer and fewer sequences draft, and more wait for each draft.
        if round.drafting
            && !round.drafts.is_empty()
            && let Some(rule) = round.choice.as_ref().and_then(|choice| choice.stop_rule.as_ref())
        {
            round.drafting = rule.is_worth(round.drafts.len(), waiting);
        }
        match &round.path {
            Some(path) if round.drafting => {
                out.push(round.draft_row(self.seq, &self.tokens, path));
                self.in_step = RowsInStep::Draft;
            }
            _ => {
                out.extend((0..round.verify_len()).map(|i| round.verify_row(self.seq, &self.tokens, i, &self.full)));
                self.in_step = RowsInStep::Verify;
            }
        }
    }

    /// Takes the sequence out of the present step: it absorbs nothing, and asks for the same rows
    /// again.
    pub fn skip_step(&mut self) {
        self.in_step = RowsInStep::None;
    }

    fn prefill_row(&self, pos: usize) -> Row {
        Row {
            seq: self.seq,
            pos,
            token: self.tokens[pos],
            enter: Enter::Token,
            plan: self.full.clone(),
            keep: false,
            readout: if pos + 1 == self.tokens.len() { Readout::Head } else { Readout::Nothing },
        }
    }

    /// Chooses a drafter and a draft length, and copies drafts at once where the drafter copies.
    fn begin_round(&mut self, costs: &CostModel) -> Round {
        // One token of a round always comes from the full model, so that the last one needs no
        // draft.
        let limit = self.limits.left(self.tokens.len()).saturating_sub(1).min(MAX_DRAFT);
        let drafts = limit > 0 && self.policy.has_drafters();
        let forced = if drafts { self.sampler.forced() } else { Vec::new() };
        let (choice, reason) = self.policy.choose(&self.tokens, &forced, self.generated(), limit, costs);
        self.stats.drafters_off = self.policy.drafters_off();
        let mut round = Round::plain(choice, reason);
        let Some(choice) = &round.choice else { return round };
        let drafter = self.policy.drafter_mut(choice);
        drafter.copy(&self.tokens, choice.k, &mut round.drafts);
        round.path = drafter.path().cloned();
        round.drafting = round.path.is_some();
        round.bonus = choice.bonus;
        if let Some(end) = round.drafts.iter().position(|draft| self.limits.is_end(draft.token)) {
            round.drafts.truncate(end + 1);
            round.bonus = false; // no token follows the end
        }
        let allowed = round.drafts.iter().take_while(|draft| self.sampler.add_draft(draft.token)).count();
        if allowed < round.drafts.len() {
            round.drafts.truncate(allowed);
            round.bonus = choice.bonus; // a draft that the constraint excludes does not end the text either
        }
        round
    }

    /// Takes the logits of the rows of the present step, the first of which is row `first` of
    /// `output`; commits, rolls back, and appends the committed tokens. Does nothing if it had no
    /// rows in the step.
    ///
    /// # Errors
    /// Logits that cannot be sampled from, or a backend that refuses the new length. The sequence
    /// is over then. Tokens in `committed` stay, as they would without speculation.
    pub fn absorb(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<CommittedToken>,
    ) -> Result<(), SequenceError> {
        if self.failed {
            return Err(SequenceError::Failed(self.seq));
        }
        let result = match std::mem::replace(&mut self.in_step, RowsInStep::None) {
            RowsInStep::None => Ok(()),
            RowsInStep::Prefill(end) => self.absorb_prefill(backend, output, first, end, committed),
            RowsInStep::Draft => self.absorb_draft(output, first),
            RowsInStep::Verify => self.absorb_verification(backend, output, first, committed),
        };
        result.inspect_err(|_| self.failed = true)
    }

    fn absorb_prefill(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        end: usize,
        committed: &mut Vec<CommittedToken>,
    ) -> Result<(), SequenceError> {
        self.stats.layer_rows += ((end - self.kv_len) * self.full.n_layers()) as u64;
        if end < self.tokens.len() {
            return self.set_kv_len(backend, end);
        }
        self.finish_round(Round::plain(None, RoundReason::Prompt), backend, output, first, committed)
    }

    /// A draft row proposes the next token, or ends the draft.
    fn absorb_draft(&mut self, output: &StepOutput, first: usize) -> Result<(), SequenceError> {
        expect_rows(output, first, 1)?;
        let Some(choice) = output.choice(first) else {
            self.draft_here(output.logits(first));
            return Ok(());
        };
        if let Err(NoChoice::Panic(message)) = choice {
            resume_unwind(Box::new(message.clone()));
        }
        let draft = self.take_proposed().pop();
        self.add_draft(draft);
        Ok(())
    }

    /// Chooses a draft on this thread, where a constraint masks its logits.
    fn draft_here(&mut self, logits: &[f32]) {
        let Some(round) = &self.round else { return };
        let at = round.next_position(&self.tokens);
        let Some(choice) = &round.choice else { return };
        let drafter = self.policy.drafter(choice);
        let min_confidence = drafter.min_confidence().max(self.policy.min_confidence(choice, at.row));
        let draft = self.sampler.draft(logits, drafter.vocab(), at, min_confidence);
        self.add_draft(draft);
    }

    fn take_proposed(&mut self) -> Vec<DraftToken> {
        std::mem::take(self.proposed.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the draft of a row that was run, or ends the draft: without one, or where its
    /// confidence is too low.
    fn add_draft(&mut self, draft: Option<DraftToken>) {
        let Some(round) = &mut self.round else { return };
        let place = round.drafts.len();
        let (Some(choice), Some(path)) = (&mut round.choice, &round.path) else { return };
        round.draft_rows += 1;
        self.stats.layer_rows += path.plan.cost_layers() as u64;
        let bound = self.policy.drafter(choice).min_confidence().max(self.policy.min_confidence(choice, place));
        match draft.filter(|draft| draft.confidence >= bound) {
            None => {
                (round.drafting, round.declined) = (false, true);
                if round.drafts.is_empty() {
                    round.reason = RoundReason::LowConfidence;
                }
            }
            Some(draft) => {
                let more = self.policy.continues_after(choice, place + 1, draft.confidence);
                let ends = self.limits.is_end(draft.token);
                let allowed = self.sampler.add_draft(draft.token);
                round.drafts.push(draft);
                round.drafting = more && !ends && allowed;
                round.bonus &= !ends; // no token follows the end
            }
        }
    }

    /// The tokens of a draft row's logits (`None`: all), and whether its confidence is needed.
    pub(crate) fn draft_rows(&self, round: &Round) -> Option<(Option<&[TokenId]>, bool)> {
        let choice = round.choice.as_ref()?;
        let drafter = self.policy.drafter(choice);
        Some((drafter.vocab(), drafter.min_confidence() > 0.0 || choice.stop_rule.is_some()))
    }

    /// When the draft whose row was last asked for ends, as data for [`Backend::draft`]. `None` if
    /// no draft row was asked for, or each token needs a mask of its own.
    ///
    /// Only for a sequence that is alone in its step. Beside others the price of a draft depends on
    /// how many of them wait for it, which changes from row to row, and their drafts share steps.
    pub fn draft_stop_rule(&self) -> Option<DraftStopRule> {
        let (RowsInStep::Draft, Some(round)) = (self.in_step, &self.round) else { return None };
        self.sampler.row_sampler()?;
        let choice = round.choice.as_ref()?;
        let most = choice.k.checked_sub(round.drafts.len()).filter(|most| *most > 0)?;
        let min_confidence = self.policy.drafter(choice).min_confidence();
        let rule = self.policy.draft_stop_rule(choice, round.drafts.len());
        Some(DraftStopRule { most, min_confidence, ends: self.limits.eos.clone(), ..rule })
    }

    /// Takes a whole draft, made in place of the draft row last asked for.
    ///
    /// # Errors
    /// [`SequenceError::Failed`] if the sequence is over.
    ///
    /// # Panics
    /// If choosing a token panicked, with its message.
    pub fn absorb_whole_draft(&mut self, output: &DraftOutput) -> Result<(), SequenceError> {
        if self.failed {
            return Err(SequenceError::Failed(self.seq));
        }
        if !matches!(std::mem::replace(&mut self.in_step, RowsInStep::None), RowsInStep::Draft) {
            return Ok(());
        }
        if let Some(message) = &output.panic {
            resume_unwind(Box::new(message.clone()));
        }
        let mut proposed = self.take_proposed().into_iter();
        for _ in 0..output.rows {
            self.add_draft(proposed.next());
        }
        Ok(())
    }

    fn absorb_verification(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<CommittedToken>,
    ) -> Result<(), SequenceError> {
        let Some(round) = self.round.take() else { return Ok(()) };
        let rows = round.verify_len();
        let kept = round.path.as_ref().map_or(0, |p| p.plan.exact_prefix() * rows.min(round.draft_rows));
        self.stats.layer_rows += (rows * self.full.n_layers() - kept) as u64;
        self.finish_round(round, backend, output, first, committed)
    }

    /// Accepts, commits, rolls back, and records the round.
    fn finish_round(
        &mut self,
        mut round: Round,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<CommittedToken>,
    ) -> Result<(), SequenceError> {
        expect_rows(output, first, round.verify_len())?;
        let before = self.tokens.len();
        let (tokens, limits, finish) = (&mut self.tokens, &self.limits, &mut self.finish);
        let commit = |token: TokenId, source, logprob: Option<TokenLogprob>| {
            tokens.push(token);
            committed.push(CommittedToken { token, source, logprob });
            *finish = limits.finish(token, tokens.len());
            finish.is_none()
        };
        let rows = |i| match output.choice(first + i) {
            Some(choice) => VerifyReadout::Choice(choice),
            None => VerifyReadout::Logits(output.logits(first + i)),
        };
        let accepted = accept_drafts(&mut self.sampler, &round.drafts, round.bonus, before, rows, commit);
        let accepted = accepted.map_err(|(row, error)| sequence_error(before + row, error))?;
        self.set_kv_len(backend, self.tokens.len() - 1)?;
        self.record_round(&round, before, accepted);
        if self.auxiliary && self.policy.exit_head_is_over() {
            self.disable_exit_head();
            backend.drop_auxiliary(self.seq)?;
        }
        self.sampler.end_round(&mut round.drafts);
        Ok(())
    }

    /// Counts a finished round, and lets the policy learn from it. `before`: tokens committed
    /// before it.
    fn record_round(&mut self, round: &Round, before: usize, AcceptedDrafts { accepted, rejected }: AcceptedDrafts) {
        let drafted = round.drafts.len();
        let gained = self.tokens.len() - before;
        let drafter = round.choice.as_ref().map(|choice| self.policy.drafter(choice).kind());
        self.stats.count_round(drafter, drafted, accepted, rejected);
        if let (Some(choice), Some(kind)) = (&round.choice, drafter) {
            self.stats.by_drafter[kind as usize].declined += u64::from(round.declined);
            let by_rule = usize::from(!self.sampler.is_greedy());
            let judged = accepted + usize::from(rejected);
            for (i, draft) in round.drafts[..judged].iter().enumerate().filter(|(_, d)| d.confidence > 0.0) {
                self.policy.record_draft(choice, draft.confidence, i < accepted);
                self.stats.confidence[by_rule].record_draft(draft.confidence, i < accepted);
            }
            let (draft_steps, declined) = (round.waiting.steps, round.declined);
            let result = RoundResult { draft_steps, drafted, accepted, rejected, declined, committed: gained };
            self.policy.record_round(choice, result, self.tokens.len() - self.limits.prompt_len);
        }
        let drafter = drafter.filter(|_| drafted > 0);
        let trace = RoundTrace { committed: before, drafter, drafted, accepted, gained, reason: round.reason };
        self.latest_round = Some(trace);
        if self.trace_len > 0 {
            if self.trace.len() == self.trace_len {
                self.trace.pop_front();
            }
            self.trace.push_back(trace);
        }
    }
}

fn sequence_error(pos: usize, error: TokenChoiceError) -> SequenceError {
    match error {
        TokenChoiceError::Logits(fault) => SequenceError::Logits { pos, fault },
        TokenChoiceError::Constraint(why) => SequenceError::Constraint { pos, why },
    }
}

fn expect_rows(output: &StepOutput, first: usize, wanted: usize) -> Result<(), SequenceError> {
    let got = output.len().saturating_sub(first);
    if got < wanted { Err(SequenceError::MissingLogits { first, wanted, got }) } else { Ok(()) }
}
