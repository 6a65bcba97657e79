//! The sampler of one sequence, together with the state that its choices depend on: the counts for
//! the penalties and the constraint of a grammar.
//!
//! Row i of a verification must see drafts 1 to i, as plain decoding would have committed them. So
//! drafts are added when they are made, all taken back before the verification, and added again one
//! by one as they are committed. An accepted draft counts once, a rejected one never.

use selfspec_model::TokenId;

use crate::error::LogitsError;
use crate::sample::constraint::{RoundConstraint, TokenConstraint};
use crate::sample::history::PenaltyHistory;
use crate::sample::noise::RoundPosition;
use crate::sample::params::SamplingParams;
use crate::sample::sampler::{DraftToken, LogitsRow, Sampler, VerifiedToken};

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
}

impl SequenceSampler {
    /// A sampler for valid `params` after `prompt`; `entropy` is the base of unseeded draws.
    pub fn new(params: &SamplingParams, prompt: &[TokenId], entropy: u64) -> Self {
        let history = PenaltyHistory::new(params, prompt);
        SequenceSampler { sampler: Sampler::new(params, entropy), history, constraint: None }
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
    pub fn history(&self) -> &PenaltyHistory {
        &self.history
    }

    /// The tokens that the constraint forces next, before a round; none without a constraint.
    pub fn forced(&mut self) -> Vec<TokenId> {
        self.constraint.as_mut().map_or_else(Vec::new, RoundConstraint::forced)
    }

    /// Proposes a token for `at` from a draft's logits; see [`Sampler::draft`].
    ///
    /// Shape of `logits`: (tokens of `vocab`), or (vocabulary) where that is `None`.
    ///
    /// # Errors
    /// The constraint cannot say which tokens may follow.
    pub fn draft(
        &mut self,
        logits: &[f32],
        vocab: Option<&[TokenId]>,
        at: RoundPosition,
        min_confidence: f32,
    ) -> Result<Option<DraftToken>, TokenChoiceError> {
        let mask = self.constraint.as_mut().map(RoundConstraint::mask).transpose();
        let mask = mask.map_err(TokenChoiceError::Constraint)?;
        let row = LogitsRow { logits, tokens: vocab, mask };
        Ok(self.sampler.draft(row, &self.history, at, min_confidence))
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
    ) -> Result<VerifiedToken, TokenChoiceError> {
        let mask = self.constraint.as_mut().map(RoundConstraint::mask).transpose();
        let mask = mask.map_err(TokenChoiceError::Constraint)?;
        let row = LogitsRow { mask, ..LogitsRow::all(logits) };
        let verified = self.sampler.verify(row, &self.history, at, draft)?;
        self.history.commit(verified.token);
        if let Some(constraint) = &mut self.constraint {
            constraint.commit(verified.token).map_err(TokenChoiceError::Constraint)?;
        }
        Ok(verified)
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
