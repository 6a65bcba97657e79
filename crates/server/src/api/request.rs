//! The request for text that every dialect's body is parsed to. It is plain data and complete when
//! made.

use selfspec_model::TokenId;
use selfspec_speculate::{SamplingParams, SpeculationParams};
use selfspec_text::Message;
use serde_json::{Map, Value, json};

/// A request for text.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// The input.
    pub prompt: PromptInput,
    /// The body's field that holds the prompt, for error messages.
    pub prompt_field: &'static str,
    /// Number of choices, at least 1. With a seed, choice i samples with the seed plus i.
    pub choices: usize,
    /// How tokens are sampled.
    pub sampling: SamplingParams,
    /// When a choice ends.
    pub end: EndConditions,
    /// How tokens are drafted.
    pub drafting: DraftOptions,
    /// The tools that the model may call.
    pub tools: ToolOffer,
    /// What the text must be.
    pub format: AnswerFormat,
    /// The body's field that holds the format's source, for error messages.
    pub format_field: &'static str,
    /// What the answer contains.
    pub output: OutputOptions,
}

/// The input of a request.
#[derive(Debug, Clone)]
pub enum PromptInput {
    /// Messages that the chat template renders.
    Chat(Conversation),
    /// Text that is continued.
    Text(String),
    /// Tokens that are continued. Shape: (token).
    Tokens(Vec<TokenId>),
}

/// The messages of a chat.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The messages, oldest first; at least one.
    pub messages: Vec<Message>,
    /// Variables for the chat template.
    pub template_variables: Map<String, Value>,
}

/// When a choice ends, besides the model's own end-of-text tokens.
#[derive(Debug, Clone)]
pub struct EndConditions {
    /// Most tokens of a choice, at least 1; `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// Strings that end the text, none of them empty. The text ends before the string.
    pub stop: Vec<String>,
    /// Whether to go on after the model's end-of-text tokens.
    pub ignore_eos: bool,
}

/// How tokens are drafted. It changes the speed only.
#[derive(Debug, Clone)]
pub struct DraftOptions {
    /// Drafter and draft length.
    pub speculation: SpeculationParams,
    /// Whether the request itself chose them.
    pub chosen: bool,
    /// Text that the answer is likely to repeat.
    pub prediction: Option<String>,
}

/// What the answer contains besides its text, and how it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputOptions {
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream ends with token counts.
    pub usage: bool,
    /// With each token its log-probability and those of this many most likely tokens; `None`: no
    /// log-probabilities.
    pub logprobs: Option<usize>,
    /// Whether tokens and their sources are listed.
    pub tokens: bool,
    /// Whether every event of a stream carries timings.
    pub timings: bool,
}

/// The tools of a request. Without tools it is empty.
#[derive(Debug, Clone, Default)]
pub struct ToolOffer {
    /// The tools that the prompt describes. With `tool_choice` none it describes none.
    pub offered: Vec<OfferedTool>,
    /// The tools that may be called, as indices of `offered`.
    pub allowed: Vec<usize>,
    /// Whether the answer must consist of tool calls.
    pub required: bool,
    /// Whether an answer may have several calls; `None`: the request does not say.
    pub parallel: Option<bool>,
}

/// A tool that the model may call.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// The function's name.
    pub name: String,
    /// The schema of its arguments, which are an object.
    pub parameters: Map<String, Value>,
    /// The tool as chat templates expect it.
    pub json: Value,
}

/// What the text of an answer must be.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerFormat {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema(Value),
    /// A match of a regular expression.
    Regex(String),
    /// A sentence of a grammar in llguidance's variant of Lark.
    Lark(String),
}

impl ToolOffer {
    /// The tools that may be called.
    pub fn callable(&self) -> impl Iterator<Item = &OfferedTool> {
        self.allowed.iter().map(|index| &self.offered[*index])
    }
}

impl OutputOptions {
    /// Whether the answer lists single tokens.
    pub fn lists_tokens(&self) -> bool {
        self.logprobs.is_some() || self.tokens
    }
}

impl GenerationRequest {
    /// Its parameters for the record: no texts and no tokens.
    pub fn parameters(&self) -> Map<String, Value> {
        let sampling = &self.sampling;
        // In its shortest decimal form: 0.7 instead of 0.699999988079071.
        let short = |number: f32| number.to_string().parse::<f64>().unwrap_or(f64::from(number));
        let parameters = json!({
            "stream": self.output.stream,
            "n": self.choices,
            "max_tokens": self.end.max_tokens,
            "temperature": short(sampling.temperature),
            "top_p": short(sampling.top_p),
            "top_k": sampling.top_k,
            "min_p": short(sampling.min_p),
            "repetition_penalty": short(sampling.repetition_penalty),
            "presence_penalty": short(sampling.presence_penalty),
            "frequency_penalty": short(sampling.frequency_penalty),
            "logit_bias": sampling.logit_bias.len(),
            "seed": sampling.seed,
            "stop": self.end.stop.len(),
            "ignore_eos": self.end.ignore_eos,
            "logprobs": self.output.logprobs,
        });
        if let Value::Object(map) = parameters { map } else { Map::new() }
    }
}
