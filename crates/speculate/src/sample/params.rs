//! How a request chooses tokens from logits.

use selfspec_model::TokenId;

use crate::error::ParamError;

/// How a token is chosen from a row of logits.
///
/// The transforms run in this order, the same for draft, verification and plain decoding: the mask
/// of a grammar, logit bias, repetition penalty, frequency and presence penalty, temperature,
/// top-k, top-p (of the tokens that top-k kept, renormalised), min-p (against the most probable
/// token). Top-k, top-p and min-p see the distribution after temperature.
///
/// The default is greedy with every transform off.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the highest logit after bias and penalties, ties to the lowest token id. Values
    /// below [`SamplingParams::GREEDY_BELOW`] are greedy too: the softmax has one token left there.
    pub temperature: f32,
    /// Keeps the k most probable tokens; 0 is off.
    pub top_k: usize,
    /// Keeps the fewest most probable tokens whose mass reaches this; in (0, 1], 1 is off.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as probable as the most probable one; in [0, 1], 0 is
    /// off.
    pub min_p: f32,
    /// Divides positive logits and multiplies negative ones of tokens in the prompt or the output;
    /// above 0, 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token in the output; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once for each time that it is in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens. A token that is listed twice gets both.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// With a seed, each token is a pure function of (logits, seed, position), so that output is
    /// the same with speculation on and off. Without a seed, speculation is rejection sampling: the
    /// same distribution, other draws.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    /// Temperatures below this are greedy.
    pub const GREEDY_BELOW: f32 = 1e-5;

    /// Whether tokens are chosen without random numbers.
    pub fn is_greedy(&self) -> bool {
        self.temperature < Self::GREEDY_BELOW
    }

    /// Whether choices depend on the tokens before.
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Checks every field that does not need the vocabulary. [`crate::Sequence::new`] also checks
    /// the tokens of the bias.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn validate(&self) -> Result<(), ParamError> {
        let in_range = |field, value: f32, ok: bool, expected| {
            if ok { Ok(()) } else { Err(ParamError::OutOfRange { field, value: f64::from(value), expected }) }
        };
        let finite = |v: f32| v.is_finite();
        let t = self.temperature;
        in_range("temperature", t, finite(t) && t >= 0.0, "a finite number, 0 or above")?;
        let p = self.top_p;
        in_range("top_p", p, p > 0.0 && p <= 1.0, "above 0, at most 1")?;
        let p = self.min_p;
        in_range("min_p", p, (0.0..=1.0).contains(&p), "from 0 to 1")?;
        let r = self.repetition_penalty;
        in_range("repetition_penalty", r, finite(r) && r > 0.0, "a finite number above 0")?;
        let a = self.presence_penalty;
        in_range("presence_penalty", a, finite(a), "a finite number")?;
        let a = self.frequency_penalty;
        in_range("frequency_penalty", a, finite(a), "a finite number")?;
        match self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            Some((token, bias)) => Err(ParamError::Bias { token: *token, bias: f64::from(*bias) }),
            None => Ok(()),
        }
    }
}
