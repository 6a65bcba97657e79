//! A sequence: its tokens, how many of them the cache holds, and its sampler and policy.

use std::collections::VecDeque;
use std::sync::Mutex;

use selfspec_model::{Backend, LayerPlan, SeqId, TokenId, TokenLogprob};

use crate::draft::grammar::GrammarDrafter;
use crate::draft::registry::drafters;
use crate::error::SequenceError;
use crate::policy::cost::model::CostModel;
use crate::policy::speculation_policy::SpeculationPolicy;
use crate::round::draft_verify_accept::Round;
use crate::round::token_source::TokenSource;
use crate::sample::constraint::TokenConstraint;
use crate::sample::sampler::DraftToken;
use crate::sample::sequence_sampler::SequenceSampler;
use crate::sequence::limits::{SequenceEnd, SequenceLimits};
use crate::sequence::params::SequenceParams;
use crate::stats::{RoundTrace, SpecStats};
use crate::target::TargetModel;

/// A token that became part of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedToken {
    /// The token.
    pub token: TokenId,
    /// How the round got it.
    pub source: TokenSource,
    /// Its log-probability, where the request asks for it.
    pub logprob: Option<TokenLogprob>,
}

/// The rows that the sequence put into the present step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowsInStep {
    None,
    /// Prompt rows, or rows recomputed after preemption, up to this position. The last committed
    /// token's row has logits.
    Prefill(usize),
    Draft,
    Verify,
}

/// One sequence from its prompt to its end.
#[derive(Debug)]
pub struct Sequence {
    pub(crate) seq: SeqId,
    pub(crate) full: LayerPlan,
    pub(crate) auxiliary: bool,      // the exit head may draft: the backend keeps it up
    pub(crate) tokens: Vec<TokenId>, // prompt and output
    pub(crate) kv_len: usize,        // positions in the cache; tokens.len() - 1 between rounds
    pub(crate) limits: SequenceLimits,
    pub(crate) sampler: SequenceSampler,
    pub(crate) policy: SpeculationPolicy,
    pub(crate) round: Option<Round>,
    pub(crate) proposed: Mutex<Vec<DraftToken>>, // chosen where their logits are, until they are absorbed
    pub(crate) in_step: RowsInStep,
    pub(crate) finish: Option<SequenceEnd>,
    pub(crate) failed: bool,
    pub(crate) stats: SpecStats,
    pub(crate) latest_round: Option<RoundTrace>, // until it is taken
    pub(crate) trace: VecDeque<RoundTrace>,
    pub(crate) trace_len: usize, // rounds
}

impl Sequence {
    /// A sequence that the backend knows as `seq`. Its cache is empty.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn new(seq: SeqId, params: SequenceParams, target: &TargetModel) -> Result<Self, SequenceError> {
        params.validate(target)?;
        let SequenceParams { prompt, sampling, speculation, prediction, max_tokens, eos, logprobs, entropy } = params;
        let drafters = drafters(&speculation, target, prediction, prompt.len());
        let path = drafters.iter().find_map(|d| d.path()).cloned();
        let sampler = SequenceSampler::new(&sampling, &prompt, entropy).with_logprobs(logprobs);
        Ok(Sequence {
            seq,
            full: LayerPlan::full(target.n_layers),
            auxiliary: path.as_ref().is_some_and(|p| p.uses_exit_head()),
            kv_len: 0,
            limits: SequenceLimits { max_tokens, context: target.context, eos, prompt_len: prompt.len() },
            policy: SpeculationPolicy::new(drafters, &speculation, sampler.is_greedy()),
            sampler,
            round: None,
            proposed: Mutex::default(),
            in_step: RowsInStep::None,
            finish: (max_tokens == 0).then_some(SequenceEnd::Length),
            failed: false,
            stats: SpecStats { path, ..SpecStats::default() },
            latest_round: None,
            trace: VecDeque::new(),
            trace_len: speculation.trace,
            tokens: prompt,
        })
    }

    /// Constrains the whole output. Tokens that the constraint forces are drafted, unless
    /// speculation is off. Before the first step.
    pub fn with_constraint(mut self, constraint: Box<dyn TokenConstraint>) -> Self {
        self.sampler.constrain(constraint);
        self.policy.add_first_drafter(Box::new(GrammarDrafter::default()));
        self
    }

    /// Whether the backend must keep up its auxiliary layers for the sequence: the exit head may
    /// draft.
    pub fn wants_auxiliary(&self) -> bool {
        self.auxiliary
    }

    /// Gives the exit head up before the first step where it is not expected to pay beside `beside`
    /// other sequences.
    pub fn disable_hopeless_exit_head(&mut self, beside: usize, costs: &CostModel) {
        if self.auxiliary && self.policy.exit_head_is_hopeless(self.tokens.len(), beside, costs) {
            self.disable_exit_head();
        }
    }

    /// Drafts without the exit head to the sequence's end. The backend must be told.
    pub(crate) fn disable_exit_head(&mut self) {
        self.auxiliary = false;
        self.policy.disable_exit_head();
    }

    /// Starts from a cache that holds the first `kv_len` positions: a shared prefix. At most all
    /// but the last token count. Before the first step.
    pub fn reuse_prefix(&mut self, kv_len: usize) {
        self.kv_len = kv_len.min(self.tokens.len() - 1);
    }

    /// Goes on after preemption as `seq`, of which the cache holds the first `kv_len` positions.
    /// The committed tokens stay, and their K and V are computed again.
    pub fn restart_as(&mut self, seq: SeqId, kv_len: usize) {
        self.abandon_round();
        self.seq = seq;
        self.reuse_prefix(kv_len);
    }

    /// Drops the drafts of the round under way and their K and V, which frees pages. The committed
    /// tokens stay.
    ///
    /// # Errors
    /// The backend refuses the length. The sequence is over then.
    pub fn roll_back(&mut self, backend: &mut dyn Backend) -> Result<(), SequenceError> {
        self.abandon_round();
        self.set_kv_len(backend, self.kv_len).inspect_err(|_| self.failed = true)
    }

    fn abandon_round(&mut self) {
        self.in_step = RowsInStep::None;
        let mut drafts = self.round.take().map_or_else(Vec::new, |round| round.drafts);
        self.sampler.abandon_round(&mut drafts);
    }

    /// Sets the cache's length, and checks it.
    pub(crate) fn set_kv_len(&mut self, backend: &mut dyn Backend, len: usize) -> Result<(), SequenceError> {
        backend.set_len(self.seq, len)?;
        let got = backend.kv_len(self.seq)?;
        if got != len {
            return Err(SequenceError::KvLength { seq: self.seq, expected: len, got });
        }
        self.kv_len = len;
        Ok(())
    }

    /// Why the sequence ended; `None` while it goes on.
    pub fn finish(&self) -> Option<SequenceEnd> {
        self.finish
    }

    /// The counters so far.
    pub fn stats(&self) -> &SpecStats {
        &self.stats
    }

    /// The latest rounds, oldest first, where the request asks for a trace.
    pub fn trace(&self) -> impl ExactSizeIterator<Item = &RoundTrace> {
        self.trace.iter()
    }

    /// The latest round, once: `None` until another one ends.
    pub fn take_round(&mut self) -> Option<RoundTrace> {
        self.latest_round.take()
    }

    /// Prompt and output.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Length of the prompt in tokens.
    pub fn prompt_len(&self) -> usize {
        self.limits.prompt_len
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.limits.prompt_len
    }

    /// Committed tokens to compute before the next one can be chosen; 0 while decoding.
    pub fn prefill_left(&self) -> usize {
        let left = self.tokens.len() - self.kv_len;
        if left > 1 { left } else { 0 }
    }

    /// The backend's name for the sequence.
    pub fn seq(&self) -> SeqId {
        self.seq
    }
}
