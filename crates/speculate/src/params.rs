//! What a request may choose: how tokens are sampled, how they are drafted, and when to stop.

use selfspec_model::{LayerPlan, TokenId};

use crate::draft::kind::DrafterKind;
use crate::error::ParamError;
use crate::sample::params::SamplingParams;
use crate::target::Target;

/// Most tokens that one round may draft.
pub const MAX_DRAFT: usize = 16;

/// Most alternatives whose log-probability may be asked for, per token.
pub const MAX_LOGPROBS: usize = 64;

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

impl DrafterChoice {
    /// The choice as a flag's value: `off`, `auto`, or the drafter's own name.
    pub fn flag(&self) -> &'static str {
        match self {
            DrafterChoice::Off => "off",
            DrafterChoice::Auto => "auto",
            DrafterChoice::LayerSkip(_) => DrafterKind::LayerSkip.flag(),
            DrafterChoice::ExitHead => DrafterKind::ExitHead.flag(),
            DrafterChoice::PromptLookup => DrafterKind::PromptLookup.flag(),
        }
    }
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

    /// Checks every parameter for a model.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub(crate) fn validate(&self, target: &Target) -> Result<(), ParamError> {
        let (vocab, context, len) = (target.vocab, target.context, self.prompt.len());
        self.sampling.validate()?;
        self.speculation.validate(target)?;
        if len == 0 {
            return Err(ParamError::EmptyPrompt);
        }
        if len >= context {
            return Err(ParamError::PromptTooLong { len, context });
        }
        check_tokens("prompt", self.prompt.iter(), vocab)?;
        check_tokens("prediction", self.prediction.iter(), vocab)?;
        check_tokens("eos", self.eos.iter(), vocab)?;
        check_tokens("logit_bias", self.sampling.logit_bias.iter().map(|(token, _)| token), vocab)?;
        match self.logprobs.filter(|n| *n > MAX_LOGPROBS) {
            Some(n) => Err(ParamError::OutOfRange { field: "logprobs", value: n as f64, expected: "from 0 to 64" }),
            None => Ok(()),
        }
    }
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
