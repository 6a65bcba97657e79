//! What may be asked of an engine.

use std::time::Instant;

use selfspec_model::TokenId;
use selfspec_speculate::{SamplingParams, SpeculationParams};
use selfspec_text::{Grammar, Message};

use crate::events::reasoning::ReasoningMarks;

/// The input of a request.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// Token ids as they are; nothing is added.
    Tokens(Vec<TokenId>),
    /// Plain text: control tokens' spellings stay text, and one BOS is put before it if the model
    /// wants one.
    Text(String),
    /// A conversation, rendered with the model's chat template and a prompt for the assistant's
    /// turn.
    Chat(Vec<Message>),
}

/// One request: a prompt, and how to continue it. [`Request::new`] gives greedy decoding with
/// speculation as [`SpeculationParams`] has it by default.
#[derive(Debug, Clone)]
pub struct Request {
    /// The input. An empty one becomes the model's BOS, and is an error if the model has none.
    pub prompt: Prompt,
    /// Most tokens to generate, at least 1. `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// How tokens are drafted. Never changes what is generated, or its distribution, only the
    /// speed.
    pub speculation: SpeculationParams,
    /// Strings that end the text, none of them empty. The text ends before the string; the token
    /// that completes it is the last one in ids, logprobs and usage, because the model did generate
    /// it.
    pub stop: Vec<String>,
    /// Tokens that end the generation, besides the model's own end-of-text tokens. Such a token is
    /// the last one in ids and usage, and has no text.
    pub stop_tokens: Vec<TokenId>,
    /// Go on after the model's own end-of-text tokens.
    pub ignore_eos: bool,
    /// What the text must be, made by [`Engine::grammar`](crate::Engine::grammar). Where the text
    /// is complete it ends; `max_tokens` may end it before.
    pub grammar: Option<Grammar>,
    /// The marks of reasoning that may come before the answer. Stop strings and the grammar apply
    /// to the answer alone. `None`: all of the output is the answer.
    pub reasoning: Option<ReasoningMarks>,
    /// What the output is expected to be, as tokens: drafts are copied from it. Never changes what
    /// is generated.
    pub prediction: Vec<TokenId>,
    /// Control tokens that are spelled out in the text, which otherwise leaves them out: those that
    /// a reader of calls looks for.
    pub spelled: Vec<TokenId>,
    /// Log-probabilities wanted with each token: that of the token and of this many most likely
    /// ones.
    pub logprobs: Option<usize>,
    /// When it ends with an error if it has not ended by then:
    /// [`EngineError::DeadlineInQueue`](crate::EngineError::DeadlineInQueue) if it has not begun,
    /// else [`EngineError::Deadline`](crate::EngineError::Deadline). It is looked at before each
    /// step.
    pub deadline: Option<Instant>,
}

impl Request {
    /// A request with defaults: greedy, no stop strings, up to the end of the context.
    pub fn new(prompt: Prompt) -> Self {
        Request {
            prompt,
            max_tokens: None,
            sampling: SamplingParams::default(),
            speculation: SpeculationParams::default(),
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            grammar: None,
            reasoning: None,
            prediction: Vec::new(),
            spelled: Vec::new(),
            logprobs: None,
            deadline: None,
        }
    }
}
