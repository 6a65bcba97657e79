//! The sampler of one sequence, together with the state that its choices depend on: the counts for
//! the penalties and the constraint of a grammar.
//!
//! Row i of a verification must see drafts 1 to i, as plain decoding would have committed them. The
//! penalties of a row count the drafts before it. A constraint advances by each draft when it is
//! made, rolls all of them back before the verification, and advances again by each committed
//! token.
//!
//! Tokens are chosen in two places by the same functions: where the logits are, on any thread
//! ([`RowSampler`]), or here, where a constraint makes the mask of each row only when it is
//! reached.

use std::panic::resume_unwind;

use selfspec_model::{LogitsError, NoChoice, TokenChoice, TokenId};

use crate::sample::constraint::{RoundConstraint, TokenConstraint};
use crate::sample::history::{PenaltyHistory, PenaltyView};
use crate::sample::logprob;
use crate::sample::noise::RoundPosition;
use crate::sample::params::SamplingParams;
use crate::sample::sampler::{DraftToken, LogitsRow, Sampler};

/// Why no token can be chosen from a row of logits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenChoiceError {
    /// The logits cannot be sampled from.
    Logits(LogitsError),
    /// The constraint cannot say which tokens may follow: its own words.
    Constraint(String),
}

impl From<LogitsError> for TokenChoiceError {
    fn from(error: LogitsError) -> Self {
        TokenChoiceError::Logits(error)
    }
}

/// Chooses the tokens of one sequence, drafts and output alike.
#[derive(Debug)]
pub struct SequenceSampler {
    sampler: Sampler,
    history: PenaltyHistory,
    constraint: Option<RoundConstraint>,
    logprobs: Option<usize>, // alternatives for each token
}

impl SequenceSampler {
    /// A sampler for valid `params` after `prompt`; `entropy` is the base of unseeded draws.
    pub fn new(params: &SamplingParams, prompt: &[TokenId], entropy: u64) -> Self {
        let history = PenaltyHistory::new(params, prompt);
        SequenceSampler { sampler: Sampler::new(params, entropy), history, constraint: None, logprobs: None }
    }

    /// Computes log-probabilities of committed tokens, with this number of alternatives; `None`:
    /// none.
    pub fn with_logprobs(self, logprobs: Option<usize>) -> Self {
        SequenceSampler { logprobs, ..self }
    }

    /// Constrains the output, which is empty so far.
    pub fn constrain(&mut self, constraint: Box<dyn TokenConstraint>) {
        self.constraint = Some(RoundConstraint::new(constraint));
    }

    /// Begins another output: `base` replaces the seed or, without one, the entropy.
    pub fn restart(&mut self, base: u64, params: &SamplingParams, prompt: &[TokenId]) {
        self.sampler.reseed(base);
        self.history = PenaltyHistory::new(params, prompt);
    }

    /// Whether the most probable token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.sampler.is_greedy()
    }

    /// The counts for the penalties, with the drafts of the round so far.
    pub fn history(&self) -> PenaltyView<'_> {
        self.history.view()
    }

    /// What its choices need that any thread may look at; `None` under a constraint.
    pub(crate) fn row_sampler(&self) -> Option<RowSampler<'_>> {
        let SequenceSampler { sampler, history, logprobs, .. } = self;
        self.constraint.is_none().then_some(RowSampler { sampler, history, logprobs: *logprobs })
    }

    /// The tokens that the constraint forces next, before a round; none without a constraint.
    pub fn forced(&mut self) -> Vec<TokenId> {
        self.constraint.as_mut().map_or_else(Vec::new, RoundConstraint::forced)
    }

    /// Proposes a token for `at` from a draft's logits; see [`Sampler::draft`].
    ///
    /// Shape of `logits`: (tokens of `vocab`), or (vocabulary) where that is `None`.
    ///
    /// `None` also where the constraint cannot say which tokens may follow: a draft that will be
    /// rejected must not fail the sequence. If the accepted tokens lead there too, verification
    /// finds the same error, as plain decoding does.
    pub fn draft(
        &mut self,
        logits: &[f32],
        vocab: Option<&[TokenId]>,
        at: RoundPosition,
        min_confidence: f32,
    ) -> Option<DraftToken> {
        let mask = self.constraint.as_mut().map(RoundConstraint::mask).transpose().ok()?;
        let row = LogitsRow { logits, tokens: vocab, mask };
        self.sampler.draft(row, self.history.view(), at, min_confidence)
    }

    /// Adds a draft to the round. False if the constraint excludes it: no draft can follow it.
    pub fn add_draft(&mut self, token: TokenId) -> bool {
        self.history.draft(token);
        self.constraint.as_mut().is_none_or(|constraint| constraint.draft(token))
    }

    /// Takes all drafts of the round back, so that they can be verified.
    ///
    /// # Errors
    /// The constraint cannot take them back.
    pub fn drop_drafts(&mut self) -> Result<(), TokenChoiceError> {
        self.history.drop_drafts();
        let dropped = self.constraint.as_mut().map_or(Ok(()), RoundConstraint::drop_drafts);
        dropped.map_err(TokenChoiceError::Constraint)
    }

    /// Chooses the token for `at` from the full model's logits, and commits it: the draft if it is
    /// accepted, else its replacement.
    ///
    /// Shape of `logits`: (vocabulary).
    ///
    /// # Errors
    /// The logits cannot be sampled from, or the constraint cannot say which tokens may follow.
    pub fn verify(
        &mut self,
        logits: &[f32],
        at: RoundPosition,
        draft: Option<&DraftToken>,
    ) -> Result<TokenChoice, TokenChoiceError> {
        let mask = self.constraint.as_mut().map(RoundConstraint::mask).transpose();
        let mask = mask.map_err(TokenChoiceError::Constraint)?;
        let row = LogitsRow { mask, ..LogitsRow::all(logits) };
        let row_sampler = RowSampler { sampler: &self.sampler, history: &self.history, logprobs: self.logprobs };
        let choice = row_sampler.verify(row, &[], at, draft)?;
        self.commit(choice)
    }

    /// Commits a token that was chosen where its logits are.
    ///
    /// # Errors
    /// The logits could not be sampled from.
    ///
    /// # Panics
    /// If choosing panicked, with its message.
    pub fn take_choice(&mut self, choice: &Result<TokenChoice, NoChoice>) -> Result<TokenChoice, TokenChoiceError> {
        match choice {
            Ok(choice) => self.commit(choice.clone()),
            Err(NoChoice::Logits(error)) => Err((*error).into()),
            Err(NoChoice::Panic(message)) => resume_unwind(Box::new(message.clone())),
        }
    }

    fn commit(&mut self, choice: TokenChoice) -> Result<TokenChoice, TokenChoiceError> {
        self.history.commit(choice.token);
        if let Some(constraint) = &mut self.constraint {
            constraint.commit(choice.token).map_err(TokenChoiceError::Constraint)?;
        }
        Ok(choice)
    }

    /// Ends a verified round: the tokens committed in it are part of the output. Reuses the memory
    /// of its drafts.
    pub fn end_round(&mut self, drafts: &mut Vec<DraftToken>) {
        if let Some(constraint) = &mut self.constraint {
            constraint.end_round();
        }
        self.sampler.recycle(drafts);
    }

    /// Drops a round that will not be verified.
    pub fn abandon_round(&mut self, drafts: &mut Vec<DraftToken>) {
        self.history.drop_drafts();
        if let Some(constraint) = &mut self.constraint {
            constraint.abandon_round();
        }
        self.sampler.recycle(drafts);
    }
}

/// The part of a sequence's sampler that any thread may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSampler<'a> {
    sampler: &'a Sampler,
    history: &'a PenaltyHistory,
    logprobs: Option<usize>,
}

impl RowSampler<'_> {
    /// The drafts of the round so far.
    pub(crate) fn drafts(&self) -> &[TokenId] {
        self.history.drafts()
    }

    /// Chooses the token for `at` from the full model's logits, after `drafts` of the round.
    pub(crate) fn verify(
        &self,
        row: LogitsRow<'_>,
        drafts: &[TokenId],
        at: RoundPosition,
        draft: Option<&DraftToken>,
    ) -> Result<TokenChoice, LogitsError> {
        let verified = self.sampler.verify(row, self.history.after(drafts), at, draft)?;
        let logprob = self.logprobs.map(|n| logprob::of(row.logits, verified.token, n));
        Ok(TokenChoice { token: verified.token, accepted: verified.accepted, confidence: 0.0, logprob })
    }

    /// Proposes the token for `at` from a draft's logits, after `drafts` of the round.
    pub(crate) fn propose(
        &self,
        row: LogitsRow<'_>,
        drafts: &[TokenId],
        at: RoundPosition,
        with_confidence: bool,
    ) -> Result<DraftToken, LogitsError> {
        self.sampler.propose(row, self.history.after(drafts), at, with_confidence)
    }
}
