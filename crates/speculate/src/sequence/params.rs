//! The parameters of one sequence.

use selfspec_model::TokenId;

use crate::draft::params::SpeculationParams;
use crate::error::ParamError;
use crate::sample::params::SamplingParams;
use crate::target::TargetModel;

/// Most alternatives with log-probabilities that a request may ask for, per token.
pub const MAX_LOGPROBS: usize = 64;

/// Everything about one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceParams {
    /// Tokens to continue; at least one, fewer than the context.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// How tokens are drafted.
    pub speculation: SpeculationParams,
    /// The expected output. Drafts are copied from it, unless speculation is off. Empty: none is
    /// expected.
    pub prediction: Vec<TokenId>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Tokens that end the output. The one that ends it is its last token.
    pub eos: Vec<TokenId>,
    /// With `Some(n)`, committed tokens carry their log-probability and the n best alternatives.
    pub logprobs: Option<usize>,
    /// Base of the draws of unseeded sampling. Requests that share it draw alike.
    pub entropy: u64,
}

impl SequenceParams {
    /// Greedy continuation of `prompt` by up to `max_tokens` tokens, with the default speculation
    /// and no end token.
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
    pub(crate) fn validate(&self, target: &TargetModel) -> Result<(), ParamError> {
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
