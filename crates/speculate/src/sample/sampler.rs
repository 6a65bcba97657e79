//! The one sampler: drafts, verification and plain decoding choose tokens here and nowhere else.
//!
//! A row of logits goes through the request's transforms (see [`SamplingParams`] for their order),
//! then through one of three rules:
//!
//! - **Greedy**: the highest logit, ties to the lowest id. No random number is used.
//! - **Coupled sampling** (with a seed): `argmax log p(x) + G(seed, position, x)`, G Gumbel noise.
//!   A draft guesses with the same noise, and is accepted if it guessed the same token. So the
//!   output is that of plain decoding, token for token.
//! - **Rejection sampling** (without a seed): a draft x drawn from q is accepted with probability
//!   min(1, p(x) / q(x)). A rejected one is replaced by a draw from max(0, p - q), renormalised, or
//!   from p where that is zero. (Leviathan et al. 2023, Chen et al. 2023.)
//!
//! Drafts of the model go through the same transforms as the target, truncation and temperature
//! included. So q is as close to p as the draft's logits allow, and is the distribution that the
//! draft was really drawn from. Copied drafts have a point mass as q.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selfspec_model::{LogitsError, TokenId};

use crate::sample::constraint::TokenMask;
use crate::sample::distribution::TokenDistribution;
use crate::sample::history::PenaltyView;
use crate::sample::noise::{NoiseKey, NoisePurpose, RoundPosition};
use crate::sample::params::SamplingParams;
use crate::sample::softmax::{PeakLogit, sum_exp};
use crate::sample::truncation::TokenTruncation;

/// A proposed token.
#[derive(Debug, Clone)]
pub struct DraftToken {
    /// The token.
    pub token: TokenId,
    /// The distribution that it was really drawn from. `None` is the point mass on the token: the
    /// draft was copied, or the rule is greedy or coupled, where only the token counts.
    pub q: Option<TokenDistribution>,
    /// Confidence: the probability of the row's most probable token; 0 where it was not requested.
    pub confidence: f32,
}

impl DraftToken {
    /// A draft that was not drawn: q is the point mass on it.
    pub fn point(token: TokenId) -> Self {
        DraftToken { token, q: None, confidence: 0.0 }
    }
}

/// The logits that a token is chosen from.
#[derive(Debug, Clone, Copy)]
pub struct LogitsRow<'a> {
    /// Shape: (tokens).
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

/// The token at a position after verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The draft if it was accepted, else its replacement.
    pub token: TokenId,
    /// Whether the draft was accepted; false without a draft.
    pub accepted: bool,
}

#[derive(Debug, Clone, Copy)]
enum SamplingRule {
    Greedy,
    Coupled { seed: u64 },
    Rejection { entropy: u64 },
}

/// Chooses the tokens of one sequence. Any thread may ask: a choice depends on nothing but its
/// arguments.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    rule: SamplingRule,
    scale: f32, // 1 / temperature
    truncation: TokenTruncation,
    spare: Mutex<Vec<TokenDistribution>>, // memory of drafts that have been verified
}

/// Buffers of one choice.
#[derive(Debug, Default)]
struct SamplerScratch {
    edited: Vec<f32>, // a row after bias and penalties
    truncation: TokenTruncation,
    p: TokenDistribution,
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

    /// Proposes a token from a draft's logits. `None` where its confidence is below
    /// `min_confidence` (the probability of its most probable token, at temperature 1 if greedy),
    /// or where the logits cannot be sampled from: a bad draft is no error. A `min_confidence` of 0
    /// asks for no confidence.
    pub fn draft(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        min_confidence: f32,
    ) -> Option<DraftToken> {
        let draft = self.propose(row, past, at, min_confidence > 0.0).ok()?;
        (draft.confidence >= min_confidence).then_some(draft)
    }

    /// Proposes a token from a draft's logits, whatever its confidence, which is computed on
    /// request.
    ///
    /// # Errors
    /// Logits that cannot be sampled from.
    pub fn propose(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        with_confidence: bool,
    ) -> Result<DraftToken, LogitsError> {
        self.with_scratch(|scratch| {
            let SamplerScratch { edited, truncation, .. } = scratch;
            let tokens = row.tokens;
            let token = |i| row.token(i);
            let row = edit_logits(&self.params, row, past, edited);
            let peak = PeakLogit::of(row)?;
            let confidence = if with_confidence { (1.0 / sum_exp(row, peak.logit, self.scale)) as f32 } else { 0.0 };
            let draft = match self.rule {
                SamplingRule::Greedy => DraftToken::point(token(peak.token)),
                SamplingRule::Coupled { seed } => {
                    DraftToken::point(coupled_token(truncation, row, tokens, peak, self.scale, seed, at))
                }
                SamplingRule::Rejection { entropy } => {
                    let mut q = self.spare().pop().unwrap_or_default();
                    fill_distribution(truncation, row, tokens, peak, self.scale, &mut q);
                    let token = q.draw(NoiseKey::new(entropy, NoisePurpose::Draft, at).uniform());
                    DraftToken { q: Some(q), ..DraftToken::point(token) }
                }
            };
            Ok(DraftToken { confidence, ..draft })
        })
    }

    /// Whether the most probable token is always taken.
    pub(crate) fn is_greedy(&self) -> bool {
        matches!(self.rule, SamplingRule::Greedy)
    }

    /// Verifies the draft for a position by the full model's logits, or chooses a token where there
    /// is no draft. The row has all tokens.
    ///
    /// # Errors
    /// Logits that cannot be sampled from.
    pub fn verify(
        &self,
        row: LogitsRow<'_>,
        past: PenaltyView<'_>,
        at: RoundPosition,
        draft: Option<&DraftToken>,
    ) -> Result<VerifiedToken, LogitsError> {
        self.with_scratch(|scratch| {
            let SamplerScratch { edited, truncation, p, residual } = scratch;
            let row = edit_logits(&self.params, row, past, edited);
            let peak = PeakLogit::of(row)?;
            let guess = draft.map(|d| d.token);
            let entropy = match self.rule {
                SamplingRule::Greedy => {
                    return Ok(VerifiedToken { token: peak.token, accepted: guess == Some(peak.token) });
                }
                SamplingRule::Coupled { seed } => {
                    let token = coupled_token(truncation, row, None, peak, self.scale, seed, at);
                    return Ok(VerifiedToken { token, accepted: guess == Some(token) });
                }
                SamplingRule::Rejection { entropy } => entropy,
            };
            let uniform = |purpose| NoiseKey::new(entropy, purpose, at).uniform();
            fill_distribution(truncation, row, None, peak, self.scale, p);
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

    /// Replaces the seed or the entropy, whichever the rule uses.
    pub fn reseed(&mut self, base: u64) {
        match &mut self.rule {
            SamplingRule::Greedy => {}
            SamplingRule::Coupled { seed } => *seed = base,
            SamplingRule::Rejection { entropy } => *entropy = base,
        }
    }

    /// Takes back the memory of drafts that have been verified or dropped.
    pub(crate) fn recycle(&self, drafts: &mut Vec<DraftToken>) {
        self.spare().extend(drafts.drain(..).filter_map(|d| d.q));
    }

    fn spare(&self) -> MutexGuard<'_, Vec<TokenDistribution>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The row after mask, bias and penalties; the logits themselves where there are none.
fn edit_logits<'a>(
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

/// The token of coupled sampling. `peak.token` is an index of the row.
fn coupled_token(
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
fn fill_distribution(
    truncation: &mut TokenTruncation,
    row: &[f32],
    tokens: Option<&[TokenId]>,
    peak: PeakLogit,
    scale: f32,
    out: &mut TokenDistribution,
) {
    if truncation.is_off(row.len()) {
        out.fill_all(row, tokens, peak.logit, scale);
    } else {
        out.fill(truncation.select(row, tokens, peak, scale));
    }
}
