//! The one sampler: drafts, verification and plain decoding choose tokens here and nowhere else.
//!
//! A row of logits goes through the request's transforms (see [`SamplingParams`] for their order), then one of three rules:
//!
//! - **Greedy**: the highest logit, ties to the lowest id. No random number.
//! - **Coupled** (with a seed): `argmax log p(x) + G(seed, position, x)`, G Gumbel noise. A draft guesses with the same noise; it is
//!   accepted iff it guessed the same token. So the output is that of plain decoding, token for token.
//! - **Rejection** (without): a draft x drawn from q is accepted with probability min(1, p(x) / q(x)); a refused one is replaced by
//!   a draw from max(0, p - q), renormalised, or from p where that is zero. (Leviathan et al. 2023, Chen et al. 2023.)
//!
//! Drafts of layer skip run the same transforms as the target, truncation and temperature included, on the draft's logits: q is then as close
//! to p as the draft's logits allow, costs as little as p where truncation leaves few tokens, and is by construction the
//! distribution that the draft was drawn from. Drafts that were copied have a point mass as q.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selfspec_model::{LogitsError, TokenId};

use crate::sample::constraint::TokenMask;
use crate::sample::distribution::Distribution;
use crate::sample::history::PenaltyView;
use crate::sample::noise::{NoiseKey, NoisePurpose, RoundPosition};
use crate::sample::params::SamplingParams;
use crate::sample::softmax::{PeakLogit, sum_exp};
use crate::sample::truncation::TokenTruncation;

/// A proposed token.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The token.
    pub token: TokenId,
    /// The distribution that it was really drawn from. `None` is the point mass on it: it was copied, or the rule is greedy or coupled,
    /// where only the token counts.
    pub q: Option<Distribution>,
    /// Probability of the row's most probable token; 0 where it was not asked for.
    pub confidence: f32,
}

impl Draft {
    /// A token that was not drawn.
    pub fn point(token: TokenId) -> Self {
        Draft { token, q: None, confidence: 0.0 }
    }
}

/// Logits that a token is chosen from.
#[derive(Debug, Clone, Copy)]
pub struct LogitsRow<'a> {
    /// The logits.
    pub logits: &'a [f32],
    /// Their tokens, ascending; `None`: all tokens, by id.
    pub tokens: Option<&'a [TokenId]>,
    /// The tokens that may be chosen; `None`: any.
    pub mask: Option<&'a TokenMask>,
}

impl<'a> LogitsRow<'a> {
    /// Logits of all tokens, by id, any of which may be chosen.
    pub fn all(logits: &'a [f32]) -> Self {
        LogitsRow { logits, tokens: None, mask: None }
    }

    /// The token of the `i`-th logit.
    fn token(&self, i: TokenId) -> TokenId {
        self.tokens.map_or(i, |tokens| tokens[i as usize])
    }
}

/// What a row of the target's logits says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The token that stands at the row's place: the draft, or what replaces it.
    pub token: TokenId,
    /// Whether it is the draft, accepted.
    pub accepted: bool,
}

#[derive(Debug, Clone, Copy)]
enum SamplingRule {
    Greedy,
    Coupled { seed: u64 },
    Rejection { entropy: u64 },
}

/// Chooses the tokens of one sequence. Any thread may ask: a choice depends on nothing but its arguments.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    rule: SamplingRule,
    scale: f32, // 1 / temperature
    truncation: TokenTruncation,
    spare: Mutex<Vec<Distribution>>, // memory of drafts that have been verified
}

/// Buffers of one choice.
#[derive(Debug, Default)]
struct SamplerScratch {
    edited: Vec<f32>, // a row after bias and penalties
    truncation: TokenTruncation,
    p: Distribution,
    residual: Vec<f64>,
}

thread_local! {
    /// Kept from row to row by each thread that chooses, so that decoding does not allocate.
    static SCRATCH: RefCell<SamplerScratch> = RefCell::default();
}

impl Sampler {
    /// A sampler for valid `params`; `entropy` is the base of unseeded draws.
    pub fn new(params: &SamplingParams, entropy: u64) -> Self {
        let rule = match params.seed {
            _ if params.is_greedy() => SamplingRule::Greedy,
            Some(seed) => SamplingRule::Coupled { seed },
            None => SamplingRule::Rejection { entropy },
        };
        Sampler {
            rule,
            scale: if params.is_greedy() { 1.0 } else { 1.0 / params.temperature },
            truncation: TokenTruncation::new(params),
            params: params.clone(),
            spare: Mutex::default(),
        }
    }

    /// Calls `f` with this thread's buffers.
    fn with_scratch<T>(&self, f: impl FnOnce(&mut SamplerScratch) -> T) -> T {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.truncation.take_limits(&self.truncation);
            f(scratch)
        })
    }

    /// Proposes a token from a draft's logits. `None` where its confidence is below `min_confidence` (the
    /// probability of its most probable token, at temperature 1 if greedy), or where the logits cannot be
    /// sampled from: a bad draft is no error. A `min_confidence` of 0 asks for no confidence.
    pub fn draft(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        min_confidence: f32,
    ) -> Option<Draft> {
        let draft = self.propose(row, past, at, min_confidence > 0.0).ok()?;
        (draft.confidence >= min_confidence).then_some(draft)
    }

    /// Proposes a token from a draft's logits, whatever its confidence, which is computed on request.
    ///
    /// # Errors
    /// Logits that cannot be sampled from.
    pub fn propose(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        with_confidence: bool,
    ) -> Result<Draft, LogitsError> {
        self.with_scratch(|scratch| {
            let SamplerScratch { edited, truncation, .. } = scratch;
            let tokens = row.tokens;
            let token = |i| row.token(i);
            let row = edit(&self.params, row, past, edited);
            let peak = PeakLogit::of(row)?;
            let confidence = if with_confidence { (1.0 / sum_exp(row, peak.logit, self.scale)) as f32 } else { 0.0 };
            let draft = match self.rule {
                SamplingRule::Greedy => Draft::point(token(peak.token)),
                SamplingRule::Coupled { seed } => {
                    Draft::point(gumbel_argmax(truncation, row, tokens, peak, self.scale, seed, at))
                }
                SamplingRule::Rejection { entropy } => {
                    let mut q = self.spare().pop().unwrap_or_default();
                    distribute(truncation, row, tokens, peak, self.scale, &mut q);
                    let token = q.draw(NoiseKey::new(entropy, NoisePurpose::Draft, at).uniform());
                    Draft { q: Some(q), ..Draft::point(token) }
                }
            };
            Ok(Draft { confidence, ..draft })
        })
    }

    /// Whether the most probable token is always taken.
    pub(crate) fn is_greedy(&self) -> bool {
        matches!(self.rule, SamplingRule::Greedy)
    }

    /// Verifies the draft for a position by the target's logits, or chooses a token where there is no draft.
    ///
    /// # Errors
    /// Logits that cannot be sampled from.
    pub fn verify(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        draft: Option<&Draft>,
    ) -> Result<VerifiedToken, LogitsError> {
        self.with_scratch(|scratch| {
            let SamplerScratch { edited, truncation, p, residual } = scratch;
            let row = edit(&self.params, row, past, edited);
            let peak = PeakLogit::of(row)?;
            let guess = draft.map(|d| d.token);
            let entropy = match self.rule {
                SamplingRule::Greedy => {
                    return Ok(VerifiedToken { token: peak.token, accepted: guess == Some(peak.token) });
                }
                SamplingRule::Coupled { seed } => {
                    let token = gumbel_argmax(truncation, row, None, peak, self.scale, seed, at);
                    return Ok(VerifiedToken { token, accepted: guess == Some(token) });
                }
                SamplingRule::Rejection { entropy } => entropy,
            };
            let uniform = |purpose| NoiseKey::new(entropy, purpose, at).uniform();
            distribute(truncation, row, None, peak, self.scale, p);
            let Some(draft) = draft else {
                return Ok(VerifiedToken { token: p.draw(uniform(NoisePurpose::Target)), accepted: false });
            };
            let q = draft.q.as_ref().map_or(1.0, |q| q.probability(draft.token));
            if uniform(NoisePurpose::Accept) * q < p.probability(draft.token) {
                return Ok(VerifiedToken { token: draft.token, accepted: true });
            }
            let u = uniform(NoisePurpose::Residual);
            let drawn = p.draw_residual(draft.q.as_ref(), draft.token, u, residual);
            Ok(VerifiedToken { token: drawn.unwrap_or_else(|| p.draw(u)), accepted: false })
        })
    }

    /// Starts over with another seed or entropy, whichever the rule uses.
    pub fn reseed(&mut self, base: u64) {
        match &mut self.rule {
            SamplingRule::Greedy => {}
            SamplingRule::Coupled { seed } => *seed = base,
            SamplingRule::Rejection { entropy } => *entropy = base,
        }
    }

    /// Takes back the memory of drafts that have been verified or dropped.
    pub(crate) fn recycle(&self, drafts: &mut Vec<Draft>) {
        self.spare().extend(drafts.drain(..).filter_map(|d| d.q));
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Distribution>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The row after mask, bias and penalties: the logits themselves where there are none.
fn edit<'a>(
    params: &SamplingParams,
    row: LogitsRow<'a>,
    past: PenaltyView<'_>,
    scratch: &'a mut Vec<f32>,
) -> &'a [f32] {
    let LogitsRow { logits, tokens, mask } = row;
    if mask.is_none() && params.logit_bias.is_empty() && !past.penalizes() {
        return logits;
    }
    scratch.clear();
    scratch.extend_from_slice(logits);
    if let Some(mask) = mask {
        mask.apply(tokens, scratch);
    }
    let place = |token: TokenId| match tokens {
        None => Some(token as usize),
        Some(tokens) => tokens.binary_search(&token).ok(),
    };
    for (token, bias) in &params.logit_bias {
        if let Some(logit) = place(*token).and_then(|i| scratch.get_mut(i)) {
            *logit += bias;
        }
    }
    past.penalize(params, place, scratch);
    scratch
}

/// The coupled choice, a token. `peak` is named by its place in the row.
fn gumbel_argmax(
    truncation: &mut TokenTruncation,
    row: &[f32],
    tokens: Option<&[TokenId]>,
    peak: PeakLogit,
    scale: f32,
    seed: u64,
    at: RoundPosition,
) -> TokenId {
    let key = NoiseKey::coupled(seed, at.pos);
    if truncation.is_off(row.len()) {
        return key.gumbel_argmax_row(peak, row, tokens, scale);
    }
    let kept = truncation.select(row, tokens, peak, scale);
    let first = tokens.map_or(peak.token, |tokens| tokens[peak.token as usize]);
    key.gumbel_argmax((first, 0.0), kept.iter().map(|c| (c.token, c.score)))
}

/// The distribution after all transforms.
fn distribute(
    truncation: &mut TokenTruncation,
    row: &[f32],
    tokens: Option<&[TokenId]>,
    peak: PeakLogit,
    scale: f32,
    out: &mut Distribution,
) {
    if truncation.is_off(row.len()) {
        out.fill_all(row, tokens, peak.logit, scale);
    } else {
        out.fill(truncation.select(row, tokens, peak, scale));
    }
}
