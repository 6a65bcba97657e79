//! One sequence: the rows it wants next, and what their logits make of it.

use std::collections::VecDeque;

use selfspec_model::{Backend, Enter, LayerPlan, Readout, Row, SeqId, StepOutput, TokenId};

use crate::draft::drafter::Drafter;
use crate::draft::grammar::GrammarDrafter;
use crate::draft::layers::ModelDrafter;
use crate::draft::path::DraftPath;
use crate::draft::prediction::Prediction;
use crate::draft::prompt_lookup::PromptLookup;
use crate::error::{ParamError, SpecError};
use crate::params::{DrafterChoice, MAX_DRAFT, MAX_LOGPROBS, SequenceParams, SpeculationParams};
use crate::policy::controller::{Choice, Controller, Outcome};
use crate::policy::cost::CostModel;
use crate::policy::reason::Reason;
use crate::round::accept::{Fault, Past, Round, accept};
use crate::round::source::TokenSource;
use crate::sample::history::History;
use crate::sample::logprob::{self, TokenLogprob};
use crate::sample::mask::{Constraint, TokenMask};
use crate::sample::noise::Place;
use crate::sample::sampler::Sampler;
use crate::stats::{RoundTrace, SpecStats};
use crate::target::Target;

/// Why a sequence ended. The first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was committed; it is the last token.
    Stop,
    /// As many tokens as asked for were generated.
    Length,
    /// Prompt and output fill the context.
    Context,
}

/// A token that became part of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The token.
    pub token: TokenId,
    /// What the round got it from.
    pub source: TokenSource,
    /// Its log-probability, where the request asks for it.
    pub logprob: Option<TokenLogprob>,
}

/// What ends the output.
#[derive(Debug)]
struct Limits {
    max_tokens: usize,
    context: usize,
    eos: Vec<TokenId>,
    prompt_len: usize,
}

impl Limits {
    /// Tokens that may still be generated after `committed` ones.
    fn left(&self, committed: usize) -> usize {
        let wanted = self.max_tokens.saturating_sub(committed - self.prompt_len);
        wanted.min(self.context.saturating_sub(committed))
    }

    /// Whether a sequence of `committed` tokens, the last one generated, is over.
    fn finish(&self, last: TokenId, committed: usize) -> Option<FinishReason> {
        if self.eos.contains(&last) {
            Some(FinishReason::Stop)
        } else if committed - self.prompt_len >= self.max_tokens {
            Some(FinishReason::Length)
        } else if committed >= self.context {
            Some(FinishReason::Context)
        } else {
            None
        }
    }
}

/// The rows last asked for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Nothing,
    /// Committed tokens up to this position; all of them: the last one's logits as well.
    Prompt(usize),
    Draft,
    Verify,
}

/// One sequence from its prompt to its end.
#[derive(Debug)]
pub struct Sequence {
    seq: SeqId,
    full: LayerPlan,
    auxiliary: bool,      // the exit head may draft, so that the backend must keep it up
    tokens: Vec<TokenId>, // prompt and output
    kv: usize,            // positions that the backend holds; tokens.len() - 1 between rounds
    limits: Limits,
    logprobs: Option<usize>,
    sampler: Sampler,
    history: History,
    constraint: Option<Constraint>,
    controller: Controller,
    round: Option<Round>,
    asked: Asked,
    finish: Option<FinishReason>,
    failed: bool,
    stats: SpecStats,
    latest: Option<RoundTrace>, // round that ended, until it is taken
    trace: VecDeque<RoundTrace>,
    trace_len: usize,
}

impl Sequence {
    /// A sequence that the backend knows as `seq` and that holds nothing there yet.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn new(seq: SeqId, params: SequenceParams, target: &Target) -> Result<Self, SpecError> {
        let Target { n_layers, vocab, context, .. } = *target;
        let SequenceParams { prompt, sampling, speculation, prediction, max_tokens, eos, logprobs, entropy } = params;
        sampling.validate()?;
        speculation.validate(target)?;
        if prompt.is_empty() {
            return Err(ParamError::EmptyPrompt.into());
        }
        if prompt.len() >= context {
            return Err(ParamError::PromptTooLong { len: prompt.len(), context }.into());
        }
        check_tokens("prompt", prompt.iter(), vocab)?;
        check_tokens("prediction", prediction.iter(), vocab)?;
        check_tokens("eos", eos.iter(), vocab)?;
        check_tokens("logit_bias", sampling.logit_bias.iter().map(|(token, _)| token), vocab)?;
        if let Some(n) = logprobs.filter(|n| *n > MAX_LOGPROBS) {
            return Err(ParamError::OutOfRange { field: "logprobs", value: n as f64, expected: "from 0 to 64" }.into());
        }
        let mut drafters = drafters(&speculation, target);
        if !drafters.is_empty() && !prediction.is_empty() {
            drafters.insert(0, Box::new(Prediction::new(prediction, prompt.len())));
        }
        let path = drafters.iter().find_map(|d| d.path()).cloned();
        let sampler = Sampler::new(&sampling, entropy);
        Ok(Sequence {
            seq,
            full: LayerPlan::full(n_layers),
            auxiliary: path.as_ref().is_some_and(|p| p.readout == Readout::ExitHead),
            kv: 0,
            limits: Limits { max_tokens, context, eos, prompt_len: prompt.len() },
            logprobs,
            history: History::new(&sampling, &prompt),
            constraint: None,
            controller: Controller::new(drafters, &speculation, sampler.is_greedy()),
            sampler,
            round: None,
            asked: Asked::Nothing,
            finish: (max_tokens == 0).then_some(FinishReason::Length),
            failed: false,
            stats: SpecStats { path, ..SpecStats::default() },
            latest: None,
            trace: VecDeque::new(),
            trace_len: speculation.trace,
            tokens: prompt,
        })
    }

    /// Holds the output to a mask, which holds nothing yet. What it forces is drafted, if tokens are drafted at all. Before the first rows are asked for.
    pub fn with_mask(mut self, mask: Box<dyn TokenMask>) -> Self {
        self.constraint = Some(Constraint::new(mask));
        self.controller.draft_first(Box::new(GrammarDrafter::default()));
        self
    }

    /// Whether the backend must keep up its auxiliary layers for the sequence: the exit head may draft.
    pub fn wants_auxiliary(&self) -> bool {
        self.auxiliary
    }

    /// Decides by the load, before anything is computed, whether the exit head can be expected to pay. If
    /// not, the sequence does without it to its end, and the caller tells the backend. `beside`: how many
    /// other sequences there are.
    pub fn settle(&mut self, beside: usize, costs: &CostModel) {
        if self.auxiliary && self.controller.head_is_idle(self.tokens.len(), beside, costs) {
            self.disable_exit_head();
        }
    }

    /// Drafts without the exit head to the sequence's end. The backend must be told.
    fn disable_exit_head(&mut self) {
        self.auxiliary = false;
        self.controller.give_up_head();
    }

    /// Says that the backend already holds the first `kv_len` positions: a shared prefix. At most all but the last token count.
    /// Before the first rows are asked for.
    pub fn resume(&mut self, kv_len: usize) {
        self.kv = kv_len.min(self.tokens.len() - 1);
    }

    /// The KV of the sequence is gone; it goes on as `seq`, of which the backend holds the first `kv_len` positions. What was committed
    /// stays and is computed again.
    pub fn preempted(&mut self, seq: SeqId, kv_len: usize) {
        self.forget_round();
        self.seq = seq;
        self.resume(kv_len);
    }

    /// Drops the drafts of the round under way and their KV, so that pages come free. What was committed stays.
    ///
    /// # Errors
    /// The backend refuses the length. The sequence is over then.
    pub fn roll_back(&mut self, backend: &mut dyn Backend) -> Result<(), SpecError> {
        self.forget_round();
        self.set_len(backend, self.kv).inspect_err(|_| self.failed = true)
    }

    fn forget_round(&mut self) {
        self.history.drop_drafts();
        if let Some(constraint) = &mut self.constraint {
            constraint.forget_round();
        }
        self.asked = Asked::Nothing;
        if let Some(mut round) = self.round.take() {
            self.sampler.recycle(&mut round.drafts);
        }
    }

    /// Appends the rows that the sequence wants in the next step: a chunk of the prompt of at most `prefill_budget` rows, one draft
    /// row, or the rows of a verification; they ascend in position. Nothing when it is over. Asking again without a step between gives
    /// the same rows.
    pub fn rows(&mut self, prefill_budget: usize, costs: &CostModel, out: &mut Vec<Row>) {
        self.asked = Asked::Nothing;
        if self.finish.is_some() || self.failed {
            return;
        }
        let pending = self.tokens.len() - 1;
        if self.kv < pending {
            let end = self.kv.saturating_add(prefill_budget).min(pending + 1);
            if end > self.kv {
                out.extend((self.kv..end).map(|pos| self.prompt_row(pos)));
                self.asked = Asked::Prompt(end);
            }
            return;
        }
        if self.round.is_none() {
            self.round = Some(self.begin(costs));
        }
        let Some(round) = &mut self.round else { return };
        // Those that have nothing to draft wait for those that do: the ledger is told.
        round.held_up += (round.draft_rows - round.billed) as f64 * costs.held_up();
        round.billed = round.draft_rows;
        if let Some(choice) = round.choice.as_ref().filter(|_| round.drafting && !round.drafts.is_empty()) {
            round.drafting = self.controller.holds_up(choice, round.drafts.len(), costs.held_up());
        }
        match &round.path {
            Some(path) if round.drafting => {
                out.push(round.draft_row(self.seq, &self.tokens, path));
                self.asked = Asked::Draft;
            }
            _ => {
                out.extend((0..round.verify_len()).map(|i| round.verify_row(self.seq, &self.tokens, i, &self.full)));
                self.asked = Asked::Verify;
            }
        }
    }

    /// The rows last asked for are not in the step: it takes nothing from it, and asks for them again.
    pub fn wait(&mut self) {
        self.asked = Asked::Nothing;
    }

    fn prompt_row(&self, pos: usize) -> Row {
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

    /// Chooses a drafter and a draft length, and takes what it copies at once.
    fn begin(&mut self, costs: &CostModel) -> Round {
        let generated = self.tokens.len() - self.limits.prompt_len;
        // One token always comes from the target, so that the last one needs no draft.
        let limit = self.limits.left(self.tokens.len()).saturating_sub(1).min(MAX_DRAFT);
        let forced = match &mut self.constraint {
            Some(constraint) if limit > 0 && self.controller.drafts() => constraint.forced(),
            _ => Vec::new(),
        };
        let (choice, reason) = self.controller.choose(&self.tokens, &forced, generated, limit, costs);
        self.stats.off_reason = self.controller.off_reason();
        let mut round = self.plain_round(choice, reason);
        if let Some(choice) = &round.choice {
            let drafter = self.controller.drafter_mut(choice);
            drafter.copy(&self.tokens, choice.k, &mut round.drafts);
            round.path = drafter.path().cloned();
            round.drafting = round.path.is_some();
            round.bonus = choice.bonus;
            if let Some(end) = round.drafts.iter().position(|d| self.limits.eos.contains(&d.token)) {
                round.drafts.truncate(end + 1);
                round.bonus = false; // after the end there is nothing to draw
            }
            if let Some(constraint) = &mut self.constraint {
                let allowed = round.drafts.iter().take_while(|draft| constraint.draft(draft.token)).count();
                if allowed < round.drafts.len() {
                    round.drafts.truncate(allowed);
                    round.bonus = choice.bonus; // what may not stand does not end the text either
                }
            }
        }
        round
    }

    /// A round without drafts so far.
    fn plain_round(&self, choice: Option<Choice>, reason: Reason) -> Round {
        Round {
            choice,
            path: None,
            drafts: Vec::new(),
            draft_rows: 0,
            billed: 0,
            held_up: 0.0,
            drafting: false,
            declined: false,
            bonus: false,
            reason,
        }
    }

    /// Takes the logits of the rows last asked for, the first of which is row `first` of `output`; commits, rolls back, and
    /// appends the committed tokens. Does nothing if no rows were asked for.
    ///
    /// # Errors
    /// Logits that cannot be sampled from, or a backend that refuses the new length. The sequence is over then; what `committed` got
    /// before stands, as it would without speculation.
    pub fn absorb(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<Committed>,
    ) -> Result<(), SpecError> {
        if self.failed {
            return Err(SpecError::Failed(self.seq));
        }
        let result = match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => Ok(()),
            Asked::Prompt(end) => self.absorb_prompt(backend, output, first, end, committed),
            Asked::Draft => self.absorb_draft(output, first),
            Asked::Verify => self.absorb_verify(backend, output, first, committed),
        };
        result.inspect_err(|_| self.failed = true)
    }

    fn absorb_prompt(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        end: usize,
        committed: &mut Vec<Committed>,
    ) -> Result<(), SpecError> {
        self.stats.layer_rows += ((end - self.kv) * self.full.n_layers()) as u64;
        if end < self.tokens.len() {
            return self.set_len(backend, end);
        }
        self.judge(self.plain_round(None, Reason::Prompt), backend, output, first, committed)
    }

    /// A row of the draft's plan proposes the next token, or ends the draft.
    fn absorb_draft(&mut self, output: &StepOutput, first: usize) -> Result<(), SpecError> {
        expect_rows(output, first, 1)?;
        let Some(round) = &mut self.round else { return Ok(()) };
        let (Some(choice), Some(path)) = (&mut round.choice, &round.path) else { return Ok(()) };
        round.draft_rows += 1;
        self.stats.layer_rows += path.plan.cost_layers() as u64;
        let at = Place { pos: self.tokens.len() + round.drafts.len(), row: round.drafts.len() };
        let least = self.controller.least_confidence(choice, round.drafts.len());
        let drafter = self.controller.drafter_mut(choice);
        let mask = self.constraint.as_mut().map(Constraint::mask).transpose();
        let mask = mask.map_err(|why| SpecError::Mask { pos: at.pos, why })?;
        match drafter.read(output.logits(first), mask, &mut self.sampler, &self.history, at, least) {
            None => {
                (round.drafting, round.declined) = (false, true);
                if round.drafts.is_empty() {
                    round.reason = Reason::Unsure;
                }
            }
            Some(draft) => {
                let more = self.controller.goes_on(choice, round.drafts.len() + 1, draft.confidence);
                let ends = self.limits.eos.contains(&draft.token);
                self.history.draft(draft.token);
                let stands = self.constraint.as_mut().is_none_or(|constraint| constraint.draft(draft.token));
                round.drafts.push(draft);
                round.drafting = more && !ends && stands;
                round.bonus &= !ends; // after the end there is nothing to draw
            }
        }
        Ok(())
    }

    fn absorb_verify(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<Committed>,
    ) -> Result<(), SpecError> {
        let Some(round) = self.round.take() else { return Ok(()) };
        let rows = round.verify_len();
        let kept = round.path.as_ref().map_or(0, |p| p.plan.exact_prefix() * rows.min(round.draft_rows));
        self.stats.layer_rows += (rows * self.full.n_layers() - kept) as u64;
        self.judge(round, backend, output, first, committed)
    }

    /// Accepts, commits, rolls back, and takes note.
    fn judge(
        &mut self,
        mut round: Round,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<Committed>,
    ) -> Result<(), SpecError> {
        expect_rows(output, first, round.verify_len())?;
        let before = self.tokens.len();
        let mut past = Past { history: &mut self.history, constraint: self.constraint.as_mut() };
        let (tokens, limits, finish, logprobs) = (&mut self.tokens, &self.limits, &mut self.finish, self.logprobs);
        let verdict = accept(
            &mut self.sampler,
            &mut past,
            &round.drafts,
            round.bonus,
            before,
            |i| output.logits(first + i),
            |token, source, row| {
                tokens.push(token);
                committed.push(Committed { token, source, logprob: logprobs.map(|n| logprob::of(row, token, n)) });
                *finish = limits.finish(token, tokens.len());
                finish.is_none()
            },
        );
        let verdict = verdict.map_err(|(row, fault)| match fault {
            Fault::Logits(fault) => SpecError::Logits { pos: before + row, fault },
            Fault::Mask(why) => SpecError::Mask { pos: before + row, why },
        })?;
        if let Some(constraint) = &mut self.constraint {
            constraint.end_round();
        }
        self.set_len(backend, self.tokens.len() - 1)?;
        self.take_note(&round, before, verdict.accepted, verdict.rejected);
        if self.auxiliary && self.controller.head_was_idle() {
            self.disable_exit_head();
            backend.drop_auxiliary(self.seq)?;
        }
        self.sampler.recycle(&mut round.drafts);
        Ok(())
    }

    /// Makes the cache's length `len`, and checks that it is.
    fn set_len(&mut self, backend: &mut dyn Backend, len: usize) -> Result<(), SpecError> {
        backend.set_len(self.seq, len)?;
        let got = backend.kv_len(self.seq)?;
        if got != len {
            return Err(SpecError::KvLength { seq: self.seq, expected: len, got });
        }
        self.kv = len;
        Ok(())
    }

    fn take_note(&mut self, round: &Round, before: usize, accepted: usize, rejected: bool) {
        let drafted = round.drafts.len();
        let gained = self.tokens.len() - before;
        let drafter = round.choice.as_ref().map(|c| self.controller.drafter(c).kind());
        self.stats.count_round(drafter, drafted, accepted, rejected);
        if let Some(choice) = &round.choice {
            let declined = round.declined;
            if let Some(kind) = drafter.filter(|_| declined) {
                self.stats.by_drafter[kind as usize].declined += 1;
            }
            let judged = accepted + usize::from(rejected);
            for (i, draft) in round.drafts[..judged].iter().enumerate().filter(|(_, d)| d.confidence > 0.0) {
                self.controller.learn_confidence(choice, draft.confidence, i < accepted);
                let greedy = self.sampler.is_greedy();
                self.stats.confidence[usize::from(!greedy)].add(draft.confidence, i < accepted);
            }
            let outcome = Outcome { draft_rows: round.held_up, drafted, accepted, rejected, declined, gained };
            self.controller.learn(choice, outcome, self.tokens.len() - self.limits.prompt_len);
        }
        let drafter = drafter.filter(|_| drafted > 0);
        let trace = RoundTrace { committed: before, drafter, drafted, accepted, gained, reason: round.reason };
        self.latest = Some(trace);
        if self.trace_len > 0 {
            if self.trace.len() == self.trace_len {
                self.trace.pop_front();
            }
            self.trace.push_back(trace);
        }
    }

    /// Why the sequence ended; `None` while it goes on.
    pub fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    /// What speculation did so far.
    pub fn stats(&self) -> &SpecStats {
        &self.stats
    }

    /// The latest rounds, oldest first, where the request asks for a trace.
    pub fn trace(&self) -> impl ExactSizeIterator<Item = &RoundTrace> {
        self.trace.iter()
    }

    /// The round that has ended since this was asked last.
    pub fn take_round(&mut self) -> Option<RoundTrace> {
        self.latest.take()
    }

    /// Prompt and output.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.limits.prompt_len
    }

    /// Committed tokens that have to be computed before the next token can be drawn: 0 while decoding.
    pub fn prefill_left(&self) -> usize {
        let left = self.tokens.len() - self.kv;
        if left > 1 { left } else { 0 }
    }

    /// The backend's name for the sequence.
    pub fn seq(&self) -> SeqId {
        self.seq
    }
}

fn expect_rows(output: &StepOutput, first: usize, wanted: usize) -> Result<(), SpecError> {
    let got = output.len().saturating_sub(first);
    if got < wanted { Err(SpecError::MissingLogits { first, wanted, got }) } else { Ok(()) }
}

fn check_tokens<'a>(
    field: &'static str,
    tokens: impl Iterator<Item = &'a TokenId>,
    vocab: usize,
) -> Result<(), ParamError> {
    match tokens.enumerate().find(|(_, token)| **token as usize >= vocab) {
        Some((index, token)) => Err(ParamError::UnknownToken { field, index, token: *token, vocab }),
        None => Ok(()),
    }
}

/// The drafters that a request allows, in the order in which they are asked.
fn drafters(params: &SpeculationParams, target: &Target) -> Vec<Box<dyn Drafter>> {
    let lookup = || Box::new(PromptLookup::new(params.ngram_min, params.ngram_max)) as Box<dyn Drafter>;
    let model = |path, vocab, prior| {
        Box::new(ModelDrafter::new(path, vocab, params.min_confidence).with_prior(prior)) as Box<dyn Drafter>
    };
    let skip = |plan: LayerPlan| {
        let vocab = target.draft_vocab.clone().filter(|_| params.draft_vocab);
        let readout = if vocab.is_some() { Readout::DraftVocab } else { Readout::Head };
        model(DraftPath { plan, readout }, vocab, None)
    };
    let exit_head = || {
        let head = target.exit_head.clone()?;
        Some(model(DraftPath { plan: head.plan, readout: Readout::ExitHead }, Some(head.vocab), head.acceptance))
    };
    match &params.drafter {
        DrafterChoice::Off => Vec::new(),
        DrafterChoice::PromptLookup => vec![lookup()],
        DrafterChoice::LayerSkip(plan) => vec![skip(plan.clone())],
        DrafterChoice::ExitHead => exit_head().into_iter().collect(),
        DrafterChoice::Auto => {
            let n = target.n_layers;
            let half = || LayerPlan::exit(n, n.div_ceil(2)).ok().filter(|p| !p.is_full());
            let own = match &params.auto_plan {
                Some(plan) => Some(skip(plan.clone())),
                None => exit_head().or_else(|| half().map(skip)),
            };
            std::iter::once(lookup()).chain(own).collect()
        }
    }
}
