//! What a request may choose: how tokens are sampled, how they are drafted, and when to stop.

use selfspec_model::{LayerPlan, TokenId};

use crate::error::ParamError;
use crate::target::Target;

/// Most tokens that one round may draft.
pub const MAX_DRAFT: usize = 16;

/// Most alternatives whose log-probability may be asked for, per token.
pub const MAX_LOGPROBS: usize = 64;

/// How a token is chosen from a row of logits.
///
/// The transforms run in this order, the same for draft, verification and plain decoding:
/// the mask of a grammar, logit bias, repetition penalty, frequency and presence penalty, temperature, top-k, top-p (on what top-k left,
/// renormalised), min-p (against the most probable token). Top-k, top-p and min-p see the tempered distribution.
///
/// The default is greedy with every transform off.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the highest logit after bias and penalties, ties to the lowest token id. So is anything below
    /// [`SamplingParams::GREEDY_BELOW`], where the softmax has one token left anyway.
    pub temperature: f32,
    /// Keeps the k most probable tokens; 0 is off.
    pub top_k: usize,
    /// Keeps the fewest most probable tokens whose mass reaches this; in (0, 1], 1 is off.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as probable as the most probable one; in [0, 1], 0 is off.
    pub min_p: f32,
    /// Divides positive logits and multiplies negative ones of tokens in the prompt or the output; above 0, 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token in the output; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once for each time that it is in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens. A token named twice gets both.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// With a seed, each token is a pure function of (logits, seed, position), so that output is the same with speculation on
    /// and off. Without, speculation is rejection sampling: the same distribution, other draws.
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

    /// Checks every field that does not need the vocabulary; [`crate::Sequence::new`] also checks the tokens of the bias.
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

/// Which drafter proposes tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DrafterChoice {
    /// None: plain decoding.
    Off,
    /// Prompt lookup where it has a match of good record, else the exit head, or layer skip on a model without one, where it is predicted to
    /// pay, else none.
    #[default]
    Auto,
    /// The model itself on the layers of this plan. The full plan is refused: it skips nothing.
    LayerSkip(LayerPlan),
    /// The exit head, which the model must have.
    ExitHead,
    /// Copies what followed the same last tokens earlier in the prompt or the output.
    PromptLookup,
}

/// How many tokens a round drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DraftLen {
    /// Always this many, 1 to [`MAX_DRAFT`].
    Fixed(usize),
    /// The number with the highest expected speed-up, 1 to 8, by acceptance at each place of the round and measured costs.
    #[default]
    Adaptive,
    /// By the last 64 judged drafts: one more above an acceptance of 0.85, one fewer below 0.7, within 2 to 8; drafting with the model is off
    /// where fewer than 2 would pay.
    Window,
}

/// How tokens are drafted.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeculationParams {
    /// Which drafter.
    pub drafter: DrafterChoice,
    /// How many tokens a round.
    pub draft_len: DraftLen,
    /// Verify one row more than was drafted, for one more token when all drafts are accepted.
    pub bonus: bool,
    /// Drafting stops before a token whose most probable candidate has less than this probability in the draft's distribution;
    /// 0 is off. It looks at the distribution, never at the token drawn, so that the result stays exact.
    pub min_confidence: f32,
    /// Most of plain decoding's speed that speculation may lose where it does not pay, as a share: in the long run, its trials included. `None`: a bit
    /// more than one in a hundred.
    pub max_loss: Option<f64>,
    /// Never turn speculation off when it does not pay: for proofs and measurements.
    pub always: bool,
    /// The plan that [`DrafterChoice::Auto`] uses for layer skip, in place of an exit head; `None` takes the exit head, and the first half
    /// of the layers where there is none.
    pub auto_plan: Option<LayerPlan>,
    /// Layer skip proposes tokens of the model's draft vocabulary only, if the model has one: the head then costs less.
    pub draft_vocab: bool,
    /// Longest n-gram that prompt lookup matches, 1 to 8. It tries the longest first.
    pub ngram_max: usize,
    /// Shortest n-gram that prompt lookup matches, from 1 to `ngram_max`.
    pub ngram_min: usize,
    /// Rounds that the trace remembers, the latest ones; 0 is no trace.
    pub trace: usize,
}

impl Default for SpeculationParams {
    fn default() -> Self {
        SpeculationParams {
            drafter: DrafterChoice::Auto,
            draft_len: DraftLen::Adaptive,
            bonus: true,
            min_confidence: 0.0,
            max_loss: None,
            always: false,
            auto_plan: None,
            draft_vocab: true,
            ngram_max: 4,
            ngram_min: 1,
            trace: 0,
        }
    }
}

impl SpeculationParams {
    /// No speculation.
    pub fn off() -> Self {
        SpeculationParams { drafter: DrafterChoice::Off, ..Self::default() }
    }

    /// Checks every field for a model.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn validate(&self, target: &Target) -> Result<(), ParamError> {
        let n_layers = target.n_layers;
        let count = |field, value: usize, ok: bool, expected| {
            if ok { Ok(()) } else { Err(ParamError::OutOfRange { field, value: value as f64, expected }) }
        };
        if let DraftLen::Fixed(k) = self.draft_len {
            count("draft_len", k, (1..=MAX_DRAFT).contains(&k), "from 1 to 16")?;
        }
        let c = self.min_confidence;
        if !(0.0..=1.0).contains(&c) {
            return Err(ParamError::OutOfRange {
                field: "min_confidence",
                value: f64::from(c),
                expected: "from 0 to 1",
            });
        }
        if let Some(loss) = self.max_loss.filter(|loss| !(0.0..=1.0).contains(loss)) {
            return Err(ParamError::OutOfRange { field: "max_loss", value: loss, expected: "from 0 to 1" });
        }
        count("ngram_max", self.ngram_max, (1..=8).contains(&self.ngram_max), "from 1 to 8")?;
        count("ngram_min", self.ngram_min, (1..=self.ngram_max).contains(&self.ngram_min), "from 1 to ngram_max")?;
        if self.drafter == DrafterChoice::ExitHead && target.exit_head.is_none() {
            return Err(ParamError::NoExitHead);
        }
        let chosen = match &self.drafter {
            DrafterChoice::LayerSkip(plan) => Some(plan),
            _ => None,
        };
        for plan in chosen.into_iter().chain(&self.auto_plan) {
            if plan.n_layers() != n_layers {
                return Err(ParamError::PlanDepth { plan: plan.n_layers(), model: n_layers });
            }
            if plan.is_full() {
                return Err(ParamError::PlanIsFull { n_layers });
            }
        }
        Ok(())
    }
}

/// Everything about one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceParams {
    /// Tokens to continue; at least one, fewer than the context.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// How tokens are drafted.
    pub speculation: SpeculationParams,
    /// What the output is expected to be: drafts are copied from it, if tokens are drafted at all. Empty: nothing is expected.
    pub prediction: Vec<TokenId>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Tokens that end the output; the one that does is its last token. Empty: none does.
    pub eos: Vec<TokenId>,
    /// With `Some(n)`, committed tokens carry their log-probability and the n best alternatives.
    pub logprobs: Option<usize>,
    /// Base of the draws of unseeded sampling. Two requests must not share it unless they are to draw alike.
    pub entropy: u64,
}

impl SequenceParams {
    /// Greedy continuation of `prompt` by up to `max_tokens` tokens, with the default speculation and no end token.
    pub fn new(prompt: Vec<TokenId>, max_tokens: usize) -> Self {
        SequenceParams {
            prompt,
            sampling: SamplingParams::default(),
            speculation: SpeculationParams::default(),
            prediction: Vec::new(),
            max_tokens,
            eos: Vec::new(),
            logprobs: None,
            entropy: 0,
        }
    }
}
