//! One sequence: the rows it wants next, and what their logits make of it.

use selfspec_model::{Backend, Enter, LayerPlan, Row, SeqId, StepOutput, TokenId};

use crate::cost::CostModel;
use crate::error::{LogitsFault, ParamError, SpecError};
use crate::params::SequenceParams;
use crate::stats::{RoundTrace, SpecStats};

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

/// Log-probability of a committed token, and the best alternatives.
///
/// From the log-softmax of the model's raw logits, before any transform: what the model thinks, not what the sampler made of it.
/// The same with speculation on and off.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The most probable tokens, best first, ties to the lowest id.
    pub top: Vec<(TokenId, f32)>,
}

/// A token that became part of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The token.
    pub token: TokenId,
    /// Whether it was drafted and accepted.
    pub drafted: bool,
    /// Its log-probability, where the request asks for it.
    pub logprob: Option<TokenLogprob>,
}

/// One sequence from its prompt to its end.
#[derive(Debug)]
pub struct Sequence {
    seq: SeqId,
    params: SequenceParams,
    tokens: Vec<TokenId>,
    kv: usize,
    full: LayerPlan,
    context: usize,
    asked: usize,
    finish: Option<FinishReason>,
    stats: SpecStats,
    trace: Vec<RoundTrace>,
}

impl Sequence {
    /// A sequence that the backend knows as `seq` and that holds nothing there yet.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn new(
        seq: SeqId,
        params: SequenceParams,
        n_layers: usize,
        vocab: usize,
        context: usize,
    ) -> Result<Self, SpecError> {
        params.sampling.validate()?;
        params.speculation.validate(n_layers)?;
        if params.prompt.is_empty() {
            return Err(ParamError::EmptyPrompt.into());
        }
        if params.prompt.len() >= context {
            return Err(ParamError::PromptTooLong { len: params.prompt.len(), context }.into());
        }
        let _ = vocab;
        let finish = (params.max_tokens == 0).then_some(FinishReason::Length);
        Ok(Sequence {
            seq,
            tokens: params.prompt.clone(),
            kv: 0,
            full: LayerPlan::full(n_layers),
            context,
            asked: 0,
            finish,
            stats: SpecStats::default(),
            trace: Vec::new(),
            params,
        })
    }

    /// Says that the backend already holds the first `kv_len` positions: a shared prefix. At most all but the last token count.
    pub fn resume(&mut self, kv_len: usize) {
        self.kv = kv_len.min(self.tokens.len() - 1);
    }

    /// The KV of the sequence is gone; it goes on as `seq`, of which the backend holds the first `kv_len` positions.
    pub fn preempted(&mut self, seq: SeqId, kv_len: usize) {
        self.seq = seq;
        self.resume(kv_len);
    }

    /// Drops the drafts of the round under way and their KV, so that pages come free. Committed tokens stay.
    ///
    /// # Errors
    /// The backend refuses the length.
    pub fn roll_back(&mut self, backend: &mut dyn Backend) -> Result<(), SpecError> {
        backend.set_len(self.seq, self.kv)?;
        Ok(())
    }

    /// Appends the rows that the sequence wants in the next step: a chunk of the prompt of at most `prefill_budget` rows, one draft
    /// row, or the rows of a verification. Nothing when it is finished. Asking again without a step between gives the same rows.
    pub fn rows(&mut self, prefill_budget: usize, costs: &CostModel, out: &mut Vec<Row>) {
        let _ = costs;
        self.asked = 0;
        if self.finish.is_some() {
            return;
        }
        let pending = self.tokens.len() - 1;
        let end = if self.kv == pending { self.kv + 1 } else { (self.kv + prefill_budget).min(pending + 1) };
        for pos in self.kv..end {
            out.push(Row {
                seq: self.seq,
                pos,
                token: self.tokens[pos],
                enter: Enter::Token,
                plan: self.full.clone(),
                keep: false,
                logits: pos == pending,
            });
        }
        self.asked = end - self.kv;
    }

    /// Takes the logits of the rows last asked for, the first of which is row `first` of `output`; commits, rolls back, and
    /// appends the committed tokens.
    ///
    /// # Errors
    /// Logits that cannot be sampled from, or a backend that refuses the new length. The sequence is over then.
    pub fn absorb(
        &mut self,
        backend: &mut dyn Backend,
        output: &StepOutput,
        first: usize,
        committed: &mut Vec<Committed>,
    ) -> Result<(), SpecError> {
        self.kv += std::mem::take(&mut self.asked);
        backend.set_len(self.seq, self.kv)?;
        if self.kv < self.tokens.len() {
            return Ok(());
        }
        if output.len() <= first {
            return Err(SpecError::MissingLogits { first, wanted: 1, got: 0 });
        }
        let row = output.logits(first);
        let mut best: Option<(usize, f32)> = None;
        for (i, v) in row.iter().enumerate() {
            if v.is_nan() {
                return Err(SpecError::Logits { pos: self.tokens.len(), fault: LogitsFault::NotANumber });
            }
            if best.is_none_or(|(_, b)| *v > b) {
                best = Some((i, *v));
            }
        }
        let (token, _) = best.ok_or(SpecError::MissingLogits { first, wanted: 1, got: 0 })?;
        let token = token as TokenId;
        self.tokens.push(token);
        self.stats.count_round(None, 0, 0, false);
        if self.params.eos.contains(&token) {
            self.finish = Some(FinishReason::Stop);
        } else if self.tokens.len() - self.params.prompt.len() >= self.params.max_tokens {
            self.finish = Some(FinishReason::Length);
        } else if self.tokens.len() >= self.context {
            self.finish = Some(FinishReason::Context);
        }
        committed.push(Committed { token, drafted: false, logprob: None });
        Ok(())
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
    pub fn trace(&self) -> impl Iterator<Item = &RoundTrace> {
        self.trace.iter()
    }

    /// Prompt and output.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.params.prompt.len()
    }

    /// The backend's name for the sequence.
    pub fn seq(&self) -> SeqId {
        self.seq
    }
}
