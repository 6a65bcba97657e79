//! How to generate: length, sampling, drafting, and the form that the text must have.

use std::time::Duration;

use selfspec_speculate::SamplingParams;
use selfspec_text::GrammarSource;

use crate::speculation::SpeculationRequest;

/// The default limit on generated tokens.
pub const DEFAULT_MAX_TOKENS: usize = 512;

/// How to generate. The default is greedy, with the speculation that the model and its tuning
/// choose, and at most [`DEFAULT_MAX_TOKENS`] tokens.
///
/// ```
/// use selfspec::{GenerateOptions, GrammarSource, SamplingParams};
///
/// let options = GenerateOptions {
///     max_tokens: Some(64),
///     sampling: SamplingParams { temperature: 0.8, seed: Some(7), ..SamplingParams::default() },
///     grammar: Some(GrammarSource::Regex("yes|no".to_owned())),
///     ..GenerateOptions::default()
/// };
/// assert!(options.stop.is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// Most tokens to generate, at least 1. `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen. Greedy and seeded output is the same with speculation on and off.
    pub sampling: SamplingParams,
    /// How tokens are drafted. It changes the speed and never the output.
    pub speculation: SpeculationRequest,
    /// Strings that end the text, none of them empty. The text ends before the string.
    pub stop: Vec<String>,
    /// Token ids that end the generation besides the model's own end tokens.
    pub stop_tokens: Vec<u32>,
    /// Go on after the model's own end tokens.
    pub ignore_eos: bool,
    /// The form that the text must have: a JSON schema, any JSON object, a regular expression, or a
    /// Lark grammar. Drafts obey it too, and tokens that it forces need no draft pass.
    pub grammar: Option<GrammarSource>,
    /// Text that the output is expected to resemble: drafts are copied from it. It never changes
    /// the output.
    pub prediction: Option<String>,
    /// Report each token's log-probability, and that of this many of the most probable tokens.
    pub logprobs: Option<usize>,
    /// The request fails if it has not ended after this time.
    pub timeout: Option<Duration>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: Some(DEFAULT_MAX_TOKENS),
            sampling: SamplingParams::default(),
            speculation: SpeculationRequest::default(),
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            grammar: None,
            prediction: None,
            logprobs: None,
            timeout: None,
        }
    }
}
